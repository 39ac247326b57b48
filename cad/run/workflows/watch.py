"""Watch models in use: keep their numbers for every man, detect drift, and compare two models.

The champion is the model whose results people see. A challenger, run as a shadow, scores the same
men, and its results are only compared with those of the champion.

Each night one :class:`Watched` per man and model is kept, which has numbers but no image and no
name. Histology comes months later, as a table of regions to which rows are added at the end.
Comparisons and the chart of calibration take men in the order of this table, so that their earlier
values do not change when rows are added.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import logit

from cad.base.errors import CadError
from cad.base.files import JsonObject, json_safe, typed, write_atomic
from cad.base.reading import MAX_JSON, parse_json, read_bytes, read_json, read_parquet, reading
from cad.base.share import find
from cad.base.terms.modality import MODALITIES, T2W
from cad.base.transactions import FolderKind
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.tables import read_probabilities
from cad.learning.evaluation.measures.anytime import Anytime, brier_differences, confidence_sequence
from cad.learning.evaluation.measures.drift import NIGHTS, Chart, watch
from cad.learning.labels.consensus import malignant
from cad.mri.features.typicality import Typicality
from cad.mri.imaging.makers import maker
from cad.run.model.bundle import Bundle, load_bundle, using

CHAMPION = "champion"
SHADOW = "shadow"
WATCHED = FolderKind("what nights leave of their men", lambda folder: False)
# A man's numbers are compared with those of earlier men with a scanner of the same maker. At least
# this number of earlier men is needed.
BASELINE = 60
# The share of features far from the training is shown as the mean over this number of latest men.
_LATEST = 20
_CLIP = 1e-6
# Value of each decision on the drift chart of decisions. Refer and no decision have the value
# ``_UNDECIDED``.
_DECISIONS = {"benign": 0.0, "malignant": 1.0}
_UNDECIDED = 0.5


@dataclass(frozen=True)
class Watched:
    """Hold one model's numbers for one man on one night.

    Parameters
    ----------
    role : "champion" or "shadow"
        Whether people saw the numbers, or whether they were kept for comparison only.
    model : str
        Name of the model.
    man : str
        The man's label in the run, ``sub-XXX``.
    night : int
        Number of the day: days since 1 January of the year 1.
    maker : str
        Maker of the scanner; empty where it is not known.
    inputs : dict of str to float
        For each image, how far the features of the man's regions lie from the model's training
        (:meth:`cad.mri.features.typicality.Typicality.unusual`), as a mean over the regions.
    outside : dict of str to float
        For each image, the share of features that lie more than three standard deviations from the
        training's median.
    belief : float
        The man's highest belief, in log-odds.
    decision : float
        Mean of the decisions on the man's regions. Benign counts 0 and malignant 1; refer and no
        decision count ½.
    regions : dict of str to float
        Probability of each region, by its id.
    """

    role: str
    model: str
    man: str
    night: int
    maker: str
    inputs: dict[str, float]
    outside: dict[str, float]
    belief: float
    decision: float
    regions: dict[str, float]

    def as_dict(self) -> JsonObject:
        """Return the fields as a dictionary that JSON can hold."""
        content: JsonObject = json_safe(asdict(self))
        return content

    @classmethod
    def from_dict(cls, content: JsonObject) -> Watched:
        """Return the object that :meth:`as_dict` turned into a dictionary."""
        return typed(cls, content)


def watched(run: Path, cohort: Path, models: Sequence[str], role: str, night: int) -> list[Watched]:
    """Return what a finished prediction says of every man: beliefs, decisions, probabilities,
    inputs.

    There is one object for each model and man with a probability.

    Parameters
    ----------
    run : Path
        Run folder of ``cad predict``.
    models : sequence of str
        Names or folders of the models that the prediction was made with.
    cohort : Path
        The run's cohort, whose sidecars name the scanners' makers.
    role : str
        :data:`CHAMPION` or :data:`SHADOW`.
    night : int
        Number of the day on which the men were scored (:class:`Watched`).

    Raises
    ------
    CadError
        When the folder is no finished prediction, or the prediction was made with another model.
    """
    bundles = {}
    for model in models:
        bundle = load_bundle(find("models", model))
        bundles[bundle.name] = bundle
    folder = RunFolder(run)
    all_regions = read_probabilities(folder)
    scored = all_regions[all_regions["probability"].notna()]
    measured = read_parquet(folder.features)
    rows = []
    for name, regions_of_model in scored.groupby("model", sort=True):
        if str(name) not in bundles:
            raise CadError(f"the run was made with another model: {name}", file=folder.record)
        bundle = bundles[str(name)]
        keys = regions_of_model[["participant_id", "study_id", "roi_id"]]
        X = keys.merge(measured, how="left", on=list(keys.columns))
        with using(bundle):
            unusual, outside = _inputs(bundle, X)
        # The rows are numbered from 0, as those of ``unusual`` and ``outside`` are.
        numbered = regions_of_model.reset_index(drop=True)
        for man, regions in numbered.groupby("participant_id", sort=True):
            rows_of_man = regions.index.to_numpy()
            probabilities = {}
            for roi, probability in zip(regions["roi_id"], regions["probability"], strict=True):
                probabilities[str(roi)] = float(probability)
            rows.append(
                Watched(
                    role=role,
                    model=str(name),
                    man=str(man),
                    night=night,
                    maker=_maker_of_scanner(cohort, str(man)),
                    inputs=_means_of_images(unusual, rows_of_man),
                    outside=_means_of_images(outside, rows_of_man),
                    belief=_highest_belief(regions),
                    decision=_mean_decision(regions),
                    regions=probabilities,
                )
            )
    return rows


def _inputs(bundle: Bundle, X: pd.DataFrame) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return for each image how unusual its features are, and what share is far from training."""
    limits = bundle.metadata.get("typicality")
    if limits is None:
        return {}, {}
    typical = Typicality.from_dict(limits, bundle.columns)
    unusual = typical.unusual(X)
    outside = typical.outside(X)
    # Besides images there are groups of features of no image, such as the size. They are left out.
    unusual_images = {}
    outside_images = {}
    for modality in MODALITIES:
        image = modality.short
        if image in unusual:
            unusual_images[image] = unusual[image]
            outside_images[image] = outside[image]
    return unusual_images, outside_images


def _means_of_images(values: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, float]:
    """Return for each image the mean of its values over the given rows."""
    return {image: _finite_mean(of_image[rows]) for image, of_image in values.items()}


def _finite_mean(values: np.ndarray) -> float:
    finite_values = values[np.isfinite(values)]
    if not len(finite_values):  # NumPy would warn of the mean of no value
        return float("nan")
    return float(finite_values.mean())


def _highest_belief(regions: pd.DataFrame) -> float:
    """Return a man's highest belief in log-odds.

    For a run without beliefs this is his highest probability.
    """
    column = "probability"
    if "belief" in regions and regions["belief"].notna().all():
        column = "belief"
    return float(logit(np.clip(regions[column].max(), _CLIP, 1 - _CLIP)))


def _mean_decision(regions: pd.DataFrame) -> float:
    decisions = regions["decision"].fillna("").tolist()
    return float(np.mean([_DECISIONS.get(decision, _UNDECIDED) for decision in decisions]))


def _maker_of_scanner(cohort: Path, man: str) -> str:
    """Return the maker of the scanner of a man's T2; empty where the maker is not known."""
    for sidecar in sorted((cohort / man).rglob(f"{T2W.folder}/*_{T2W.suffix}.json")):
        return maker(read_json(sidecar).get("Manufacturer"))
    return ""


def require_apart(champions: Sequence[str], shadows: Sequence[str]) -> None:
    """Check that no model is both champion and shadow.

    Parameters
    ----------
    champions, shadows : sequence of str
        Names or folders of the models: those that make the prediction, and those that are only
        compared with it.

    Raises
    ------
    CadError
        For a model that is both; the message names the model.
    """
    both = [name for name in shadows if name in champions]
    if both:
        raise CadError(
            f"{both[0]} is named as champion and as shadow", hint="name it as one of them"
        )


def day_of(record: JsonObject) -> int:
    """Return the number of the day on which a run was made, from the content of ``run.json``."""
    return datetime.fromisoformat(str(record["created"])).toordinal()


def write_rows(path: Path, rows: Sequence[Watched]) -> None:
    """Write the rows of some men into a file that only its user can read."""
    text = json.dumps([row.as_dict() for row in rows])
    write_atomic(path, text.encode(), mode=0o600)


def read_watched(folder: Path) -> list[Watched]:
    """Read every file of a watch folder.

    Parameters
    ----------
    folder : Path
        Folder of files that :func:`write_rows` wrote.

    Returns
    -------
    list of Watched
        One entry for each model, man and night. Files are read in the order of their names, and
        the entries of a file keep their order. The list is empty for a folder without files.

    Raises
    ------
    CadError
        For a damaged file; the message has its name.
    """
    rows = []
    for path in sorted(folder.glob("*.json")):
        rows += _watched_in_file(path)
    return rows


def _watched_in_file(path: Path) -> list[Watched]:
    """Return the entries of one file of a watch folder."""
    with reading(path, "not what a night leaves of its men", "bring it back from a backup"):
        content = parse_json(read_bytes(path, MAX_JSON))
        if not isinstance(content, list):
            raise CadError(
                "not what a night leaves of its men",
                file=path,
                hint="name the folder that cad predict --watch filled: RUN.watch by default",
            )
        return [Watched.from_dict(row) for row in content]


def new_men(rows: Sequence[Watched], path: Path) -> list[Watched]:
    """Return the rows of men who are in no other file of a watch folder.

    Parameters
    ----------
    rows : sequence of Watched
        Tonight's rows of every man of a cohort.
    path : Path
        The file to which the rows will be written; men in its earlier content count as new.
    """
    earlier_men = set()
    for other_path in sorted(path.parent.glob("*.json")):
        if other_path != path:
            earlier_men |= {row.man for row in _watched_in_file(other_path)}
    return [row for row in rows if row.man not in earlier_men]


@dataclass(frozen=True)
class Truth:
    """Hold whether a region is malignant by histology.

    Parameters
    ----------
    man, roi : str
        The man's label and the region's id.
    malignant : bool
        Whether it is malignant.
    """

    man: str
    roi: str
    malignant: bool


def drift_charts(
    rows: Sequence[Watched],
    truths: Sequence[Truth] = (),
    baseline: int = BASELINE,
    run_length: float = NIGHTS,
) -> dict[str, Chart]:
    """Return charts of the champion's inputs, beliefs, decisions and calibration, to detect drift.

    Parameters
    ----------
    rows : sequence of Watched
        One model's numbers for one man on one night in each object, in any order.
    truths : sequence of Truth
        Histology of regions, in the order in which it became known.
    baseline : int
        Number of earlier men with a scanner of the same maker that are needed before a man is
        compared with them.
    run_length : float
        Average number of nights between two false alarms of all charts together.

    Returns
    -------
    dict of str to Chart
        Charts by name: ``inputs T2`` and the like for other images, ``belief``, ``decisions``,
        ``calibration``. Except for calibration, men are compared only with men whose scanner is of
        the same maker.
    """
    men = _by_night(rows)
    images: set[str] = set()
    for row in men:
        images.update(row.inputs)
    measures: dict[str, list[float]] = {}
    for image in sorted(images):
        measures[f"inputs {image}"] = [row.inputs.get(image, float("nan")) for row in men]
    measures["belief"] = [row.belief for row in men]
    measures["decisions"] = [row.decision for row in men]
    # ``run_length`` counts nights between false alarms of all charts together. So with n charts, a
    # single chart may give a false alarm only once in n times as many nights.
    n_charts = len(measures) + 1
    run_length_of_chart = run_length * n_charts
    makers = [row.maker for row in men]
    nights = [row.night for row in men]
    charts: dict[str, Chart] = {}
    for number, (name, values) in enumerate(measures.items()):
        charts |= watch(
            {name: values},
            strata=makers,
            nights=nights,
            baseline=baseline,
            run_length=run_length_of_chart,
            seed=number,
        )
    # Histology comes in any order of nights. So for calibration each man counts as a night, and
    # all men are compared with each other.
    residuals = _residuals_of_men(men, truths)
    charts |= watch(
        {"calibration": residuals},
        strata=["all"] * len(residuals),
        nights=list(range(len(residuals))),
        baseline=baseline,
        run_length=run_length_of_chart,
        seed=len(measures),
    )
    return charts


def _by_night(rows: Sequence[Watched]) -> list[Watched]:
    """Return the champion's rows, the earliest night first."""
    men = [row for row in rows if row.role == CHAMPION]
    return sorted(men, key=lambda row: (row.night, row.man))


def _residuals_of_men(men: Sequence[Watched], truths: Sequence[Truth]) -> list[float]:
    """Return the mean of truth minus probability over the regions of every man with histology."""
    probability_of_region = {}
    for row in men:
        for roi, probability in row.regions.items():
            probability_of_region[row.man, roi] = probability
    residuals_by_man: dict[str, list[float]] = {}
    for truth in truths:
        expected = probability_of_region.get((truth.man, truth.roi))
        if expected is not None:  # else the region was never scored
            residual = float(truth.malignant) - expected
            residuals_by_man.setdefault(truth.man, []).append(residual)
    return [float(np.mean(residuals)) for residuals in residuals_by_man.values()]


@dataclass(frozen=True)
class Contest:
    """Hold the comparison of a challenger with the champion.

    Parameters
    ----------
    challenger, champion : str
        Names of the models.
    men : list of str
        Men with known histology whom both models scored, in the order in which it became known.
    regions : int
        Number of regions of these men with known histology.
    difference : Anytime
        Mean difference of the Brier scores, challenger minus champion, and its interval, after each
        man. Below 0 the challenger is better.
    """

    challenger: str
    champion: str
    men: list[str]
    regions: int
    difference: Anytime


def contests(rows: Sequence[Watched], truths: Sequence[Truth]) -> list[Contest]:
    """Compare every shadow model with the champion, on the men with known histology.

    Parameters
    ----------
    rows : sequence of Watched
        One model's numbers for one man on one night in each object, in any order.
    truths : sequence of Truth
        Histology of regions, in the order in which it became known.

    Returns
    -------
    list of Contest
        One comparison for each shadow model, sorted by the model's name. A shadow model is left out
        if no region with known histology was scored by both this model and the champion.
    """
    # Probabilities by man and region. A prediction may have several models in order of preference.
    # Together they are the champion.
    of_champion: dict[tuple[str, str], float] = {}
    champions: set[str] = set()
    of_challengers: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        if row.role == CHAMPION:
            champions.add(row.model)
            probabilities = of_champion
        else:
            probabilities = of_challengers.setdefault(row.model, {})
        for roi, probability in row.regions.items():
            probabilities[row.man, roi] = probability
    comparisons = []
    for name in sorted(of_challengers):
        of_challenger = of_challengers[name]
        champion_p = []
        challenger_p = []
        is_malignant = []
        man_of_region = []
        for truth in truths:
            region = (truth.man, truth.roi)
            if region in of_champion and region in of_challenger:
                champion_p.append(of_champion[region])
                challenger_p.append(of_challenger[region])
                is_malignant.append(float(truth.malignant))
                man_of_region.append(truth.man)
        if not is_malignant:  # there is nothing to compare yet
            continue
        men, difference, lowest, highest = brier_differences(
            champion_p, challenger_p, is_malignant, man_of_region
        )
        comparisons.append(
            Contest(
                challenger=name,
                champion=", ".join(sorted(champions)),
                men=men,
                regions=len(is_malignant),
                difference=confidence_sequence(difference, lowest, highest),
            )
        )
    return comparisons


def truths_of(rois: pd.DataFrame, isup_min: int = 2) -> list[Truth]:
    """Return the regions of a table whose histology is known, in the table's order.

    Parameters
    ----------
    rois : DataFrame
        Rows with ``participant_id``, ``roi_id``, ``histology`` and ``isup`` as in ``rois.tsv``.
    isup_min : int
        Lowest grade that counts as malignant.

    Raises
    ------
    CadError
        For a region that occurs twice in the table.
    """
    twice = rois[rois.duplicated(["participant_id", "roi_id"])]
    if len(twice):
        first = twice.iloc[0]
        raise CadError(
            "the truth of this region is given twice",
            patient=first["participant_id"],
            roi=first["roi_id"],
        )
    is_malignant = malignant(rois, isup_min)
    truths = []
    for man, roi, value in zip(rois["participant_id"], rois["roi_id"], is_malignant, strict=True):
        if np.isfinite(value):  # NaN where histology is unknown
            truths.append(Truth(man=str(man), roi=str(roi), malignant=bool(value)))
    return truths


def watch_summary(
    rows: Sequence[Watched],
    truths: Sequence[Truth] = (),
    baseline: int = BASELINE,
    run_length: float = NIGHTS,
) -> JsonObject:
    """Return charts of drift and comparisons of models as a dictionary that JSON can hold.

    Parameters
    ----------
    rows : sequence of Watched
        One model's numbers for one man on one night in each object, in any order.
    truths : sequence of Truth
        Histology of regions, in the order in which it became known.
    baseline : int
        Number of earlier men with a scanner of the same maker that are needed before a man is
        compared with them.
    run_length : float
        Average number of nights between two false alarms of all charts together.

    Returns
    -------
    dict
        A dictionary with these keys:

        - ``men``, ``nights`` and ``told``: number of men, of nights, and of men with known
          histology.
        - ``run_length`` and ``baseline``: as given.
        - ``charts``: for each chart ``name``, ``nights``, ``alarm`` (the day, or for calibration
          the number of the man; empty without an alarm), ``direction``, ``limit``, ``upper`` and
          ``lower``.
        - ``outside``: for each image, the latest men's mean share of features far from the
          training.
        - ``contests``: for each challenger ``challenger``, ``champion``, ``men``, ``regions``, and
          the difference of Brier scores after each man (``mean``, ``low``, ``high``). ``decided``
          is the number of men after which the interval of this difference first excluded 0, or 0
          if it never did.
    """
    men = _by_night(rows)
    charts = []
    for name, chart in drift_charts(rows, truths, baseline, run_length).items():
        alarm = ""
        if chart.alarm >= 0:
            # On the chart of calibration, a man counts as a night.
            alarm = f"man {chart.alarm + 1}"
            if name != "calibration":
                alarm = date.fromordinal(chart.alarm).isoformat()
        charts.append(
            {
                "name": name,
                "nights": len(chart.nights),
                "alarm": alarm,
                "direction": chart.direction,
                "limit": chart.limit,
                "upper": chart.upper.tolist(),
                "lower": chart.lower.tolist(),
            }
        )
    comparisons = []
    for contest in contests(rows, truths):
        sequence = contest.difference
        comparisons.append(
            {
                "challenger": contest.challenger,
                "champion": contest.champion,
                "men": len(contest.men),
                "regions": contest.regions,
                "mean": sequence.mean.tolist(),
                "low": sequence.low.tolist(),
                "high": sequence.high.tolist(),
                "decided": sequence.decided,
            }
        )
    latest_men = men[-_LATEST:]
    images: set[str] = set()
    for row in latest_men:
        images.update(row.outside)
    outside = {}
    for image in sorted(images):
        shares = [row.outside.get(image, np.nan) for row in latest_men]
        outside[image] = _finite_mean(np.array(shares))
    watched_men = {row.man for row in men}
    told_men = {truth.man for truth in truths}
    return {
        "men": len(men),
        "nights": len({row.night for row in men}),
        "told": len(watched_men & told_men),
        "run_length": run_length,
        "baseline": baseline,
        "charts": charts,
        "outside": outside,
        "contests": comparisons,
    }


def verdict(contest: JsonObject) -> str:
    """Return in a sentence what a comparison of challenger and champion tells so far."""
    # The last values of the three series, after all men so far.
    mean = contest["mean"][-1]
    low = contest["low"][-1]
    high = contest["high"][-1]
    interval = f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"
    if high < 0:
        outcome = "is better than the champion"
    elif low > 0:
        outcome = "is worse than the champion"
    else:
        outcome = "cannot be told from the champion yet"
    return (
        f"{contest['challenger']} {outcome}: difference of the Brier score {interval} "
        f"over {contest['men']} men of known truth"
    )


def watch_text(summary: JsonObject) -> str:
    """Return charts of drift and comparisons of models as lines for a terminal."""
    lines = [
        f"men: {summary['men']}, nights: {summary['nights']}, "
        f"men of known truth: {summary['told']}",
        f"charts: at most one false alarm in {summary['run_length']:.0f} nights, on average",
    ]
    for chart in summary["charts"]:
        state = "quiet"
        if not chart["nights"]:
            state = f"waits for {summary['baseline']} men of one maker"
            if chart["name"] == "calibration":
                state = f"waits for the truth of {summary['baseline']} men"
        if chart["alarm"]:
            state = f"ALARM ({chart['direction']}) since {chart['alarm']}"
        lines.append(f"  {chart['name']}: {state}")
    for image, share in summary["outside"].items():
        lines.append(
            f"  {image}: {share:.1%} of features far from the training, last {_LATEST} men"
        )
    lines += [verdict(contest) for contest in summary["contests"]]
    if not summary["contests"]:
        lines.append("no shadow model with a man of known truth")
    return "\n".join(lines)
