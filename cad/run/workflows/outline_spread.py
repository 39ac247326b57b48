"""Outline spread: how far a region's belief moves when its outline does.

Where two readers or more outlined a region themselves (``masks/*_desc-<reader>_rois.nii.gz``),
their outlines are taken; elsewhere the region is redrawn as :mod:`cad.mri.features.robustness`
does.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed

from cad.base.errors import CadError
from cad.base.settings import PipelineSettings
from cad.folders.cohort import StudyRef
from cad.folders.run_folder.tables import Failure
from cad.learning.evaluation.folds.ask import positive_probability
from cad.mri.features.images import compact
from cad.mri.features.robustness import Perturbation, copies_of, masks_features
from cad.mri.imaging.prepare import prepare_study
from cad.mri.imaging.study import Study
from cad.mri.imaging.study_files import read_reader_outlines
from cad.mri.imaging.volume import Volume
from cad.run.model.bundle import Bundle, using
from cad.run.model.fold_features import Preparation
from cad.run.model.gaps import lacking
from cad.run.stages.judge import Judged
from cad.run.stages.load import Loaded
from cad.run.stages.study import failure_of, read_study_of

TAIL = 0.05
"""Share of redrawn copies that lie below the interval, and above it."""


Spread = tuple[float, float, float, str]
"""Low, median and high of a region's belief, and the outlines that they come from.

NaN where no outline but the region's own can be scored; ``20 redrawn``, ``18 of 20 redrawn`` where
two had nothing to measure, or readers.
"""


def spread_outlines(
    loaded: Loaded, judged: Judged, bundles: Sequence[Bundle], repeats: int
) -> Judged:
    """Compute how far every scored region's belief moves with its outline.

    Parameters
    ----------
    loaded, judged : Loaded, Judged
        Cohort and settings, and the predictions so far.
    bundles : sequence of Bundle
        The models of the prediction.
    repeats : int
        Number of redrawn copies of a region that fewer than two readers outlined.

    Returns
    -------
    Judged
        A copy of ``judged``. Its results have the further columns ``outline_low, outline_median,
        outline_high`` (beliefs) and ``outlines`` (text: which ones were used); studies that
        could not be redrawn are added to its failures.
    """
    start = time.perf_counter()
    results = judged.results
    by_name = {bundle.name: bundle for bundle in bundles}
    sites = loaded.site_of
    scored = results[results["model"].isin(list(by_name))]
    models = {
        str(study): {str(r): by_name[m] for r, m in zip(rows["roi_id"], rows["model"], strict=True)}
        for study, rows in scored.groupby("study_id")
    }
    refs = [ref for ref in loaded.cohort.studies() if ref.study_id in models]
    outcomes = Parallel(n_jobs=loaded.options.processes)(
        delayed(spread_study)(
            ref,
            loaded.settings,
            models[ref.study_id],
            Perturbation(repeats=repeats),
            sites[ref.participant_id],
        )
        for ref in refs
    )
    spreads = {
        (ref.study_id, roi): spread
        for ref, (by_roi, _) in zip(refs, outcomes, strict=True)
        for roi, spread in by_roi.items()
    }
    rows = [
        spreads.get((str(study), str(roi)), (np.nan, np.nan, np.nan, ""))
        for study, roi in zip(results["study_id"], results["roi_id"], strict=True)
    ]
    return replace(
        judged,
        results=results.assign(
            # The judged belief is the region's own; made again it may differ in the last bit.
            outline_low=np.minimum([row[0] for row in rows], results["belief"]),
            outline_median=[row[1] for row in rows],
            outline_high=np.maximum([row[2] for row in rows], results["belief"]),
            outlines=[row[3] for row in rows],
        ),
        failures=[*judged.failures, *(failure for _, failure in outcomes if failure is not None)],
        timings={**judged.timings, "outlines": time.perf_counter() - start},
    )


def spread_study(
    ref: StudyRef,
    settings: PipelineSettings,
    bundles: Mapping[str, Bundle],
    perturbation: Perturbation,
    site: str = "",
) -> tuple[dict[str, Spread], Failure | None]:
    """Compute how far the belief of every scored region of a study moves with its outline.

    Parameters
    ----------
    ref : StudyRef
        The study.
    settings : PipelineSettings
        Settings with which the study was measured.
    bundles : dict of str to Bundle
        The model of every scored region, by ``roi_id``.
    perturbation : Perturbation
        How regions are redrawn.
    site : str
        Site of the patient; empty where unknown.

    Returns
    -------
    dict of str to Spread
        By ``roi_id``: low, median and high belief, and a text that names the outlines.
    Failure or None
        The reason why the study could not be read or redrawn; the dictionary is then empty.
    """
    try:
        study = read_study_of(ref, settings.images)
        study, _ = prepare_study(study, settings.images, settings.features.modalities)
        drawn = read_reader_outlines(ref.folder, ref.study_id)
        outlines = {roi: outlines_of(study, roi, drawn, perturbation) for roi in bundles}
        spreads: dict[str, Spread] = {}
        for bundle in {id(b): b for b in bundles.values()}.values():
            rois = [roi for roi, model in bundles.items() if model is bundle]
            values = _beliefs(
                study, settings, site, bundle, [m for r in rois for m in outlines[r][0]]
            )
            first = 0
            for roi in rois:
                masks, readers = outlines[roi]
                spreads[roi] = spread_of(values[first : first + len(masks)], readers)
                first += len(masks)
        return spreads, None
    except CadError as error:
        return {}, failure_of(error, ref.participant_id, ref.study_id, "outlines")


def outlines_of(
    study: Study, roi_id: str, drawn: Mapping[str, Volume], perturbation: Perturbation
) -> tuple[list[Volume], list[str]]:
    """Return the masks with which a region is scored to see how its belief moves.

    The first mask is the region's own. The others are the outlines of the readers if at least two
    readers outlined the region, else redrawn copies of its own outline.

    Parameters
    ----------
    study : Study
        Images and label map.
    roi_id : str
        The region.
    drawn : mapping of str to Volume
        Label maps by reader.
    perturbation : Perturbation
        How copies are redrawn.

    Returns
    -------
    masks : list of Volume
        The region's own mask, then the others.
    readers : list of str
        The reader of each mask after the first; empty for redrawn copies.
    """
    roi = next(roi for roi in study.rois if roi.roi_id == roi_id)
    theirs = {
        reader: compact(replace(study, roi_map=labels.with_array(labels.array == roi.label)))
        for reader, labels in drawn.items()
        if (labels.array == roi.label).any()
    }
    compacted = compact(study)
    if len(theirs) < 2:
        return copies_of(compacted, roi, perturbation), []
    redrawn = copies_of(compacted, roi, replace(perturbation, repeats=0))
    return [*redrawn, *(alone.roi_map for alone in theirs.values() if alone.roi_map)], list(theirs)


def spread_of(values: np.ndarray, readers: Sequence[str] = ()) -> Spread:
    """Return how far a region's beliefs over several outlines lie apart.

    Parameters
    ----------
    values : ndarray, shape (n_outlines,)
        Belief with each outline, that of the region's own first; NaN where an outline cannot
        be scored.
    readers : sequence of str
        The reader of each outline after the first; empty for redrawn copies.

    Returns
    -------
    Spread
        Low, median and high belief, and a text that names the outlines. For readers' outlines,
        low and high are the smallest and largest value. For redrawn copies they are the 5 % and 95
        % quantiles, widened where the region's own value lies outside of them.
    """
    others = np.isfinite(values[1:])
    scored = values[np.isfinite(values)]
    if readers:
        outlines = ", ".join(r for r, drawn in zip(readers, others, strict=True) if drawn)
    else:
        count = f"{others.sum()}" if others.all() else f"{others.sum()} of {len(others)}"
        outlines = f"{count} redrawn"
    if not others.any() or not np.isfinite(values[0]):
        return np.nan, np.nan, np.nan, outlines
    tail = 0.0 if readers else TAIL
    low, median, high = np.quantile(scored, (tail, 0.5, 1 - tail)).tolist()
    probability = float(values[0])
    return min(low, probability), median, max(high, probability), outlines


def _beliefs(
    study: Study, settings: PipelineSettings, site: str, bundle: Bundle, masks: Sequence[Volume]
) -> np.ndarray:
    """Return one model's belief of every mask; NaN where it cannot take it."""
    with using(bundle):
        preparation = Preparation.of(bundle.metadata)
        X = masks_features(study, settings, masks, preparation.scale)
        X = X.reindex(columns=bundle.features)
        lacks = lacking(X, bundle.metadata["modalities"], bundle.columns)
        whole = np.array([not images for images in lacks])
        values = np.full(len(masks), np.nan)
        if whole.any():
            rows = preparation.adjust(X, [site] * len(X))
            values[whole] = positive_probability(bundle.estimator, rows[whole])
    return values
