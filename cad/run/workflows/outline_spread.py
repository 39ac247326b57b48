"""Compute how far a region's belief changes when its outline changes.

If two or more readers outlined a region (``masks/*_desc-<reader>_rois.nii.gz``), their outlines are
used. Otherwise the region is redrawn as in :mod:`cad.mri.features.robustness`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
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
"""Share of redrawn copies whose belief is below the stated interval, and share above it."""


Spread = tuple[float, float, float, str]
"""Low, median and high belief of a region over several outlines, and a text that names these.

The beliefs are NaN where the region's own outline could not be scored, or none of the others. The
text is ``20 redrawn``, or ``18 of 20 redrawn`` where two copies could not be scored, or the names
of readers.
"""


def spread_outlines(
    loaded: Loaded, judged: Judged, bundles: Sequence[Bundle], repeats: int
) -> Judged:
    """Compute how far every scored region's belief changes with its outline.

    Parameters
    ----------
    loaded, judged : Loaded, Judged
        The run, and its predictions so far.
    bundles : sequence of Bundle
        The models of the prediction.
    repeats : int
        Number of redrawn copies of a region that fewer than two readers outlined.

    Returns
    -------
    Judged
        A copy of ``judged``. Its results have the further columns ``outline_low, outline_median,
        outline_high`` (beliefs) and ``outlines``, a text that names the outlines. Studies whose
        regions could not be redrawn are added to its failures.
    """
    start = time.perf_counter()
    results = judged.results
    sites = loaded.site_of
    models = _models_of_regions(results, bundles)
    refs = [ref for ref in loaded.cohort.studies() if ref.study_id in models]
    outcomes = Parallel(n_jobs=loaded.options.processes)(
        delayed(spread_study)(
            ref,
            loaded.settings,
            bundles=models[ref.study_id],
            perturbation=Perturbation(repeats=repeats),
            site=sites[ref.participant_id],
        )
        for ref in refs
    )
    spreads: dict[tuple[str, str], Spread] = {}
    failures = list(judged.failures)
    for ref, (spread_of_roi, failure) in zip(refs, outcomes, strict=True):
        for roi, spread in spread_of_roi.items():
            spreads[ref.study_id, roi] = spread
        if failure is not None:
            failures.append(failure)
    low = np.full(len(results), np.nan)
    median = np.full(len(results), np.nan)
    high = np.full(len(results), np.nan)
    outlines = [""] * len(results)
    regions = zip(results["study_id"].astype(str), results["roi_id"].astype(str), strict=True)
    for row, region in enumerate(regions):
        if region in spreads:  # else no model scored the region, or its study could not be redrawn
            low[row], median[row], high[row], outlines[row] = spreads[region]
    return replace(
        judged,
        results=results.assign(
            # The results hold the belief of the region with its own outline. This belief was
            # computed again together with the beliefs for the redrawn outlines. The two values may
            # differ in the last bit, and the interval shall contain both.
            outline_low=np.minimum(low, results["belief"]),
            outline_median=median,
            outline_high=np.maximum(high, results["belief"]),
            outlines=outlines,
        ),
        failures=failures,
        timings={**judged.timings, "outlines": time.perf_counter() - start},
    )


def _models_of_regions(
    results: pd.DataFrame, bundles: Sequence[Bundle]
) -> dict[str, dict[str, Bundle]]:
    """Return the model that scored each region, by ``study_id`` and then by ``roi_id``."""
    bundle_of_name = {bundle.name: bundle for bundle in bundles}
    scored = results[results["model"].isin(list(bundle_of_name))]
    models: dict[str, dict[str, Bundle]] = {}
    for row in scored[["study_id", "roi_id", "model"]].to_dict("records"):
        models_of_study = models.setdefault(str(row["study_id"]), {})
        models_of_study[str(row["roi_id"])] = bundle_of_name[row["model"]]
    return models


def spread_study(
    ref: StudyRef,
    settings: PipelineSettings,
    bundles: Mapping[str, Bundle],
    perturbation: Perturbation,
    site: str = "",
) -> tuple[dict[str, Spread], Failure | None]:
    """Compute how far the belief of every scored region of a study changes with its outline.

    Parameters
    ----------
    ref : StudyRef
        The study.
    settings : PipelineSettings
        Settings with which the study was measured for the prediction.
    bundles : dict of str to Bundle
        The model of every scored region, by ``roi_id``.
    perturbation : Perturbation
        How regions are redrawn.
    site : str
        Site of the patient; empty where unknown.

    Returns
    -------
    dict of str to Spread
        Low, median and high belief, and a text that names the outlines, by ``roi_id``.
    Failure or None
        The reason why the study could not be read or redrawn; the dictionary is then empty.
    """
    try:
        study, _ = prepare_study(
            read_study_of(ref, settings.images), settings.images, settings.features.modalities
        )
        drawn = read_reader_outlines(ref.folder, ref.study_id)
        different_bundles = {id(bundle): bundle for bundle in bundles.values()}.values()
        spreads: dict[str, Spread] = {}
        for bundle in different_bundles:
            # The masks of all regions that one model scored are measured together, because this is
            # faster than region by region.
            masks: list[Volume] = []
            masks_of_region: dict[str, slice] = {}
            readers_of_region: dict[str, list[str]] = {}
            for roi, bundle_of_roi in bundles.items():
                if bundle_of_roi is not bundle:
                    continue
                masks_of_roi, readers = outlines_of(study, roi, drawn, perturbation)
                masks_of_region[roi] = slice(len(masks), len(masks) + len(masks_of_roi))
                readers_of_region[roi] = readers
                masks += masks_of_roi
            beliefs = _belief_of_masks(study, settings, site, bundle, masks)
            for roi, numbers_of_masks in masks_of_region.items():
                spreads[roi] = spread_of(beliefs[numbers_of_masks], readers_of_region[roi])
        return spreads, None
    except CadError as error:
        return {}, failure_of(error, ref.participant_id, ref.study_id, "outlines")


def outlines_of(
    study: Study, roi_id: str, drawn: Mapping[str, Volume], perturbation: Perturbation
) -> tuple[list[Volume], list[str]]:
    """Return the masks with which a region is scored to see how its belief changes.

    The first mask is the region's own. If at least two readers outlined the region, the further
    masks are these readers' outlines; else they are redrawn copies of the region's own outline.

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
        The region's own mask, then the other masks.
    readers : list of str
        The reader of each mask after the first; empty for redrawn copies.
    """
    roi = next(roi for roi in study.rois if roi.roi_id == roi_id)
    readers = []
    masks_of_readers = []
    for reader, labels in drawn.items():
        outline = labels.array == roi.label
        if not outline.any():  # the reader did not outline this region
            continue
        # The mask by the reader is brought to the same grid as the region's own mask.
        study_with_outline = compact(replace(study, roi_map=labels.with_array(outline)))
        readers.append(reader)
        if study_with_outline.roi_map is not None:
            masks_of_readers.append(study_with_outline.roi_map)
    compacted = compact(study)
    if len(readers) < 2:
        return copies_of(compacted, roi, perturbation), []
    own_mask = copies_of(compacted, roi, replace(perturbation, repeats=0))
    return [*own_mask, *masks_of_readers], readers


def spread_of(values: np.ndarray, readers: Sequence[str] = ()) -> Spread:
    """Return how far a region's beliefs over several outlines lie apart.

    Parameters
    ----------
    values : ndarray, shape (n_outlines,)
        Belief with each outline, first with the region's own outline; NaN where an outline cannot
        be scored.
    readers : sequence of str
        The reader of each outline after the first; empty for redrawn copies.

    Returns
    -------
    Spread
        Low, median and high belief, and a text that names the outlines. For readers' outlines, low
        and high are the smallest and the largest value. For redrawn copies they are the quantiles
        at 5 % and 95 %. If the belief with the region's own outline lies outside this range, it
        replaces the nearer end.

    Examples
    --------
    >>> import numpy as np
    >>> spread_of(np.array([0.4, 0.3, 0.6]), ["r1", "r2"])
    (0.3, 0.4, 0.6, 'r1, r2')
    >>> spread_of(np.array([0.4, np.nan]))
    (nan, nan, nan, '0 of 1 redrawn')
    """
    is_scored = np.isfinite(values[1:])  # the outlines beside the region's own
    n_scored = int(is_scored.sum())
    if readers:
        tail = 0.0  # the outermost of a few readers count
        outlines = ", ".join(np.asarray(readers)[is_scored])
    else:
        tail = TAIL
        outlines = f"{n_scored} redrawn"
        if n_scored < len(is_scored):
            outlines = f"{n_scored} of {len(is_scored)} redrawn"
    if n_scored == 0 or not np.isfinite(values[0]):
        return np.nan, np.nan, np.nan, outlines
    low, median, high = np.quantile(values[np.isfinite(values)], (tail, 0.5, 1 - tail)).tolist()
    belief = float(values[0])
    return min(low, belief), median, max(high, belief), outlines


def _belief_of_masks(
    study: Study, settings: PipelineSettings, site: str, bundle: Bundle, masks: Sequence[Volume]
) -> np.ndarray:
    """Return one model's belief for every mask; NaN where the model cannot score it."""
    with using(bundle):
        preparation = Preparation.of(bundle.metadata)
        X = masks_features(study, settings, masks, preparation.scale)
        X = X.reindex(columns=bundle.features)
        lacking_images = lacking(X, bundle.metadata["modalities"], bundle.columns)
        has_all_images = np.array([not images for images in lacking_images])
        beliefs = np.full(len(masks), np.nan)
        if has_all_images.any():
            rows = preparation.adjust(X, [site] * len(X))
            beliefs[has_all_images] = positive_probability(bundle.estimator, rows[has_all_images])
    return beliefs
