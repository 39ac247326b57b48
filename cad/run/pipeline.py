"""Define the workflows: one function for each command, which calls the stages one after the other.

Each stage takes the frozen results of the earlier stages and returns its own result:

- ``load`` reads the cohort's tables and checks them against the settings;
- ``measure`` computes the features of each study, and writes a file for each;
- ``begin`` marks the run folder as unfinished, until ``emit`` finishes it;
- ``extract`` makes one table of the features of all studies;
- ``aggregate`` adds labels, from readers' scores and histology;
- ``validate`` or ``predict`` computes probabilities, and measures them where histology is known;
- ``decide_run`` decides on regions and men;
- ``emit`` writes tables and pages.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.base.settings import DecisionSettings, PipelineSettings, read_settings
from cad.base.share import find
from cad.base.transactions import claimed, require_kind, stage
from cad.folders.cohort import with_readings
from cad.folders.cohort.traces import Names
from cad.folders.cohort.without import labels_of
from cad.folders.run_folder import COMPARISON, RUNS, RunFolder
from cad.folders.run_folder.records import read_record
from cad.folders.run_folder.tables import Failure
from cad.run.execution.options import HERE, ExecutionOptions
from cad.run.execution.pool import workplace
from cad.run.execution.resume import borrow
from cad.run.execution.task import settings_key
from cad.run.model.bundle import MODEL, Bundle, load_bundle
from cad.run.stages.aggregate import Aggregated, aggregate, check_extension, extend
from cad.run.stages.decide import decide_run
from cad.run.stages.emit import Emitted, NothingScored, begin, emit, emit_nothing, unchanged
from cad.run.stages.extract import Extracted, Measured, extract, measure
from cad.run.stages.judge import Judged
from cad.run.stages.load import Kind, Loaded, load
from cad.run.stages.predict import (
    NoRegionScored,
    basis,
    first_scale,
    predict,
    shared_settings,
)
from cad.run.stages.train import train
from cad.run.stages.validate import validate
from cad.run.workflows.check import check
from cad.run.workflows.compare import compare, compare_validated
from cad.run.workflows.outline_spread import spread_outlines
from cad.run.workflows.probability_map import drop_maps, map_probability
from cad.run.workflows.recalibrate import recalibrate
from cad.run.workflows.suggest import nothing_to_read, suggest_readings
from cad.run.workflows.watch import (
    CHAMPION,
    SHADOW,
    WATCHED,
    Watched,
    day_of,
    new_men,
    require_apart,
    watched,
    write_rows,
)

__all__ = [
    "aggregate_cohort",
    "check",
    "compare_models",
    "compare_pipelines",
    "predict_cohort",
    "recalibrate_model",
    "run_pipeline",
    "suggest_next",
    "train_model",
    "watch_cohort",
    "watch_night",
]


def run_pipeline(pipeline: str, root: Path, out: Path, options: ExecutionOptions) -> Emitted:
    """Measure and label the regions of a cohort, validate a learner on them, and write the report.

    Parameters
    ----------
    pipeline : str
        Path of a pipeline file, or a name in ``pipelines/``.
    root : Path
        Cohort folder.
    out : Path
        Run folder. It is made when absent. In an existing one, results whose input is unchanged are
        kept.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept. No
        option changes a result.

    Returns
    -------
    Emitted
        Summary of the run, which the command prints.

    Raises
    ------
    CadError
        For settings that cannot be used, and for a cohort that cannot be read or learned from.
    """
    settings = read_settings(PipelineSettings, find("pipelines", pipeline, ".yaml"))
    with _locked_run_folder(out, "run", options):
        loaded = load(settings, root, out, options, "run")
        measured = measure(loaded)
        finished = unchanged(loaded, measured)
        if finished is not None:
            return finished
        begin(loaded, measured)
        aggregated = aggregate(loaded, extract(loaded, measured))
        validated = validate(loaded, aggregated, measured.failures)
        return emit(loaded, measured, decide_run(loaded, measured.failures, validated))


def train_model(
    pipeline: str,
    root: Path,
    out: Path,
    options: ExecutionOptions,
    *,
    extends: str | None = None,
    without: Sequence[str] = (),
) -> Emitted:
    """Validate as :func:`run_pipeline` does, then fit on all patients and write a model bundle.

    Parameters
    ----------
    pipeline : str
        Path of a pipeline file, or a name in ``pipelines/``.
    root : Path
        Cohort folder.
    out : Path
        Folder of the bundle. The run folder of the validation is ``<out>.validation`` beside it.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept. No
        option changes a result.
    extends : str, optional
        Name or folder of a model whose training rows are added to the rows of this cohort. The
        model must have been trained with the same settings of ``images`` and ``features``.
    without : sequence of str
        Ids of patients who withdrew. They are left out of the cohort and of the added rows. The
        card of the model states only how many they are.

    Returns
    -------
    Emitted
        Summary of the validation, which the command prints.
    """
    from cad.run.audit.withdrawal import sweep_run

    settings = read_settings(PipelineSettings, find("pipelines", pipeline, ".yaml"))
    require_kind(out, MODEL)
    validation = out.with_name(out.name + ".validation")
    for patient in labels_of(without):  # files of an earlier training may hold these patients
        sweep_run(validation, Names(patient))
    with _locked_run_folder(validation, "train", options):
        loaded = load(settings, root, validation, options, "train", without=without)
        bundle = None
        if extends is not None:
            bundle = load_bundle(find("models", extends))
            # The tables alone tell whether the training rows of the earlier model can be added. So
            # this is checked before the images are measured for hours.
            check_extension(loaded, bundle, loaded.cohort.rois)
        measured = measure(loaded)
        begin(loaded, measured)
        aggregated = aggregate(loaded, extract(loaded, measured))
        if bundle is not None:
            aggregated = extend(loaded, aggregated, bundle)
        validated = validate(loaded, aggregated, measured.failures)
        decided = decide_run(loaded, measured.failures, validated)
        emitted = emit(loaded, measured, decided)
        train(loaded, aggregated, decided, out)
        return replace(emitted, model=out)


def recalibrate_model(model: str, root: Path, out: Path, options: ExecutionOptions) -> JsonObject:
    """Recalibrate a model's probabilities on a cohort with histology, and write a new model.

    The cohort is first scored with the old model. The run folder of this scoring is
    ``<out>.before``.

    Parameters
    ----------
    model : str
        Name of a released model, or a folder.
    root : Path
        Cohort folder.
    out : Path
        Folder of the new model.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.

    Returns
    -------
    dict
        ``regions`` and ``men`` hold measures before and after the recalibration. ``text`` has the
        same measures, and the chosen thresholds, as lines for people. ``sites``, ``simulated`` and
        ``of_training`` tell on which patients the recalibration was fitted
        (:func:`cad.run.workflows.recalibrate.recalibrate`).

    Raises
    ------
    CadError
        For a model that is recalibrated already, for fewer than 30 men with histology, or for
        histology of one class only. The new model is then not written.
    """
    require_kind(out, MODEL)
    bundle = load_bundle(find("models", model))
    run_before = out.with_name(out.name + ".before")
    with _locked_run_folder(run_before, "predict", options):
        loaded = _loaded_for_bundle(bundle, root, run_before, options)
        _, _, _, judged = _score_with_model(bundle, loaded)
        return recalibrate(bundle, loaded, judged, out)


def predict_cohort(
    models: list[str],
    root: Path,
    out: Path,
    options: ExecutionOptions,
    *,
    decision: str | None = None,
    probability_map: bool = False,
    outlines: int = 0,
    readings: Sequence[str] = (),
    transductive: bool = False,
) -> Emitted:
    """Score a cohort with trained models, and measure the predictions where histology is known.

    Parameters
    ----------
    models : list of str
        Model folders, or names of released models, in order of preference. Each study is scored by
        the first model whose modalities (kinds of image) the study has.
    root : Path
        Cohort folder.
    out : Path
        Run folder. It is made when absent. In an existing one, results whose input is unchanged are
        kept.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.
    decision : str, optional
        Name or file of a site's costs of errors and aims for predictive values. They replace those
        that the first model was trained with.
    probability_map : bool
        Whether to also write an image of each prostate with the model's probability at every voxel.
    outlines : int
        If not 0, also report how far each region's belief changes with its outline. The outlines
        are those of several readers where these exist, else this number of redrawn copies.
    readings : sequence of str
        Scores that are added to the cohort for this run only, each as ``sub-XXX/ROI/READER=SCORE``
        on the scale ``likert5``.
    transductive : bool
        Whether a semi-supervised model is fitted again for each patient, with the patient's regions
        as further rows without a label.

    Returns
    -------
    Emitted
        Summary of the run, which the command prints.

    Raises
    ------
    NothingScored
        When no region got a probability, and a failure that nobody has acknowledged is the reason.
    CadError
        When a bundle is damaged, when a reading breaks a rule, or when the models were trained with
        different settings of images.
    """
    if transductive and (probability_map or outlines):
        raise CadError(
            "--transductive scores regions: no map and no other outlines can join the fit",
            hint="leave --map and --outlines out",
        )
    bundles = [load_bundle(find("models", model)) for model in models]
    settings = shared_settings(bundles, _costs(decision))
    with _locked_run_folder(out, "predict", options):
        # A finished run is reused only if it was made with the same models, options and added
        # scores.
        request = {
            "models": basis(bundles),
            "map": probability_map,
            "readings": list(readings),
            "outlines": outlines,
            "transductive": transductive,
        }
        loaded = load(settings, root, out, options, "predict", basis=request)
        loaded = replace(loaded, cohort=with_readings(loaded.cohort, readings))
        measured = measure(loaded)
        finished = unchanged(loaded, measured)
        if finished is not None:
            return finished
        # The maps of an earlier prediction are deleted even if no map is wanted now. Otherwise maps
        # of another model would stay on the page.
        drop_maps(loaded.folder)
        try:
            _, _, predicted = _predicted(bundles, loaded, measured, transductive)
        except NothingScored as error:
            # No region was scored. If all men wait for regions, or somebody has acknowledged the
            # failures, this is no error.
            if error.emitted is not None and not error.emitted.kinds.unsettled:
                return error.emitted
            raise
        if probability_map:
            predicted = map_probability(loaded, predicted, bundles)
        if outlines:
            predicted = spread_outlines(loaded, predicted, bundles, outlines)
        return emit(loaded, measured, decide_run(loaded, measured.failures, predicted))


def aggregate_cohort(
    settings: PipelineSettings, root: Path, out: Path, options: ExecutionOptions
) -> Aggregated:
    """Return features and labels of the regions of a cohort, for a learner of the caller.

    These are the first stages of :func:`run_pipeline`: nothing is validated or trained. The
    features and labels are also written to the run folder.

    Parameters
    ----------
    settings : PipelineSettings
        Which features are measured, and how scores become labels.
    root, out : Path
        Cohort folder, and run folder.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.

    Returns
    -------
    Aggregated
        One row per measured region, with its features and its label.

    Raises
    ------
    CadError
        For a cohort that cannot be read, or of which no study can be measured.
    """
    with _locked_run_folder(out, "run", options):
        loaded = load(settings, root, out, options, "run")
        measured = measure(loaded)
        # If the folder holds a finished run, it gets other tables now and no longer counts as
        # finished.
        begin(loaded, measured)
        extracted = extract(loaded, measured)
        return aggregate(loaded, extracted)


def compare_models(a: str, b: str, root: Path, out: Path, options: ExecutionOptions) -> JsonObject:
    """Score one cohort with two models, and compare their probabilities and decisions.

    Parameters
    ----------
    a, b : str
        Names of released models, or folders.
    root : Path
        Cohort folder.
    out : Path
        Folder for ``comparison.json``; the two runs are written to ``a/`` and ``b/`` in it.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.

    Returns
    -------
    dict
        ``models`` has the two names. ``differences`` has for each measure the difference between
        the two models on the same regions, with an interval that keeps the regions of a patient
        together; None without histology. ``calibration`` has the calibration intercept and slope of
        each model. ``changed`` has the regions on which the decisions of the two models differ. All
        values can be written as JSON.
    """
    with claimed(out, COMPARISON):
        first = _scored_cohort(a, root, out / "a", options)
        second = _scored_cohort(b, root, out / "b", options)
        return compare(first, second, (a, b), RunFolder(out))


def compare_pipelines(
    pipelines: list[str], root: Path, out: Path, options: ExecutionOptions
) -> JsonObject:
    """Validate several pipelines on the same folds of one cohort and compare them.

    Parameters
    ----------
    pipelines : list of str
        Pipeline files, or names in ``pipelines/``. The other pipelines are compared with the first.
    root : Path
        Cohort folder.
    out : Path
        Folder for ``comparison.json``. The run of each pipeline is written to a folder inside it,
        with the pipeline's name.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.

    Returns
    -------
    dict
        Content of ``comparison.json``. ``reference`` is the first pipeline's name, and ``regions``
        the number of regions that all pipelines measured. ``table`` is the list of differences, and
        ``sentence`` the result in words.

    Raises
    ------
    CadError
        For fewer than two pipelines, for two pipelines of the same name, and for pipelines whose
        ``validate.scheme`` differs.
    """
    settings = [
        read_settings(PipelineSettings, find("pipelines", name, ".yaml")) for name in pipelines
    ]
    names = [pipeline.name for pipeline in settings]
    names_differ = len(set(names)) == len(names)
    if len(names) < 2 or not names_differ:
        raise CadError(f"two or more pipelines of different names are compared: {names}")
    if len({pipeline.validate_.scheme for pipeline in settings}) > 1:
        raise CadError("pipelines are compared on the same folds: validate.scheme differs")
    with claimed(out, COMPARISON):
        runs: dict[str, Judged] = {}
        for pipeline in settings:
            # Pipelines with the same settings of images and features measure the same. The first of
            # these pipelines measures, and the others reuse its study files.
            names_of_same_measuring = []
            for other in settings:
                if settings_key(other) == settings_key(pipeline):
                    names_of_same_measuring.append(other.name)
            runs[pipeline.name] = _validated_pipeline(
                pipeline,
                root,
                out / pipeline.name,
                options,
                measured_in=out / names_of_same_measuring[0],
            )
        return compare_validated(runs, RunFolder(out))


def _validated_pipeline(
    settings: PipelineSettings, root: Path, out: Path, options: ExecutionOptions, measured_in: Path
) -> Judged:
    """Validate one pipeline and write its run folder; return probabilities, decisions and measures.

    ``measured_in`` is the run folder in which the same features are measured: the folder of this
    pipeline or of an earlier one.
    """
    with _locked_run_folder(out, "run", options):
        if measured_in != out:
            borrow(RunFolder(measured_in), RunFolder(out))
        loaded = load(settings, root, out, options, "run")
        measured = measure(loaded)
        begin(loaded, measured)
        aggregated = aggregate(loaded, extract(loaded, measured))
        validated = validate(loaded, aggregated, measured.failures)
        judged = decide_run(loaded, measured.failures, validated)
        emit(loaded, measured, judged)
        return judged


def suggest_next(
    model: str, root: Path, out: Path, options: ExecutionOptions, count: int
) -> tuple[pd.DataFrame, list[Failure]]:
    """Rank the regions of a cohort by how much one more reading of the region would teach a model.

    If every region has enough readers, nothing is computed. Else the cohort is scored, and the
    ranking is also written to ``suggestions.csv`` in the run folder.

    Parameters
    ----------
    model : str
        Name of a released model, or a folder.
    root, out : Path
        Cohort folder, and run folder.
    options : ExecutionOptions
        Number of processes, limits of time and memory, and whether earlier results are kept.
    count : int
        Number of regions to return.

    Returns
    -------
    table : DataFrame
        One row per region, the most valuable first, with ids, value and a reason in words
        (:func:`cad.run.workflows.suggest.suggest`); empty where every region has enough readers.
    failures : list of Failure
        Studies and regions that could not be scored and ranked.

    Raises
    ------
    CadError
        When the bundle is damaged or the cohort cannot be read, and when there are more regions
        than can be ranked together.
    """
    bundle = load_bundle(find("models", model))
    with _locked_run_folder(out, "predict", options):
        loaded = _loaded_for_bundle(bundle, root, out, options)
        # This is asked first, because to measure and score a cohort may take hours.
        if nothing_to_read(loaded):
            return pd.DataFrame(), loaded.failures
        measured, extracted, aggregated, judged = _score_with_model(bundle, loaded)
        table = suggest_readings(loaded, extracted, aggregated, judged, count)
        return table, [*loaded.failures, *measured.failures, *judged.failures]


def watch_cohort(
    models: Sequence[str],
    shadows: Sequence[str],
    root: Path,
    run: Path,
    scratch: Path,
    night: int | None = None,
    options: ExecutionOptions = HERE,
) -> tuple[list[Watched], list[str]]:
    """Return for every man the numbers of a finished prediction's models and of shadow models.

    A shadow model scores the same men, and its results are only compared.

    Parameters
    ----------
    models : sequence of str
        Models that the prediction was made with.
    shadows : sequence of str
        Shadow models.
    root : Path
        Cohort folder.
    run : Path
        Run folder of the prediction, whose measured studies the shadows reuse.
    scratch : Path
        Folder for the shadows' runs. The caller deletes it, so that nothing but the returned
        numbers remains of a shadow.
    night : int, optional
        Number of the day (``date.toordinal``); today's by default.
    options : ExecutionOptions
        Number of processes and limits for the shadows; by default they run in this process.

    Returns
    -------
    rows : list of Watched
        A row for every man and model.
    failed : list of str
        Shadow models that could score nothing, each with the reason.
    """
    if night is None:
        night = date.today().toordinal()
    rows = watched(run, root, models, CHAMPION, night)
    failed = []
    for number, shadow in enumerate(shadows):
        run_of_shadow = scratch / str(number)
        try:
            borrow(RunFolder(run), RunFolder(run_of_shadow))
            _scored_cohort(shadow, root, run_of_shadow, options)
            rows += watched(run_of_shadow, root, [shadow], SHADOW, night)
        except CadError as error:
            failed.append(f"{shadow}: {error}")
        except Exception as error:  # an error of one shadow must not lose other models' rows
            failed.append(f"{shadow}: unexpected {type(error).__name__}: {error}")
    return rows, failed


def watch_night(
    models: Sequence[str],
    shadows: Sequence[str],
    root: Path,
    run: Path,
    place: Path,
    options: ExecutionOptions = HERE,
) -> tuple[list[Watched], list[str]]:
    """Write the numbers of a prediction and of shadow models for new men into a watch folder.

    A watch folder collects such numbers over time. A shadow model scores the same men as the
    prediction, and its results are only compared. A man is written once, on the night on which he
    was first scored: a cohort grows, and the same command scores all its men every night.

    Parameters
    ----------
    models : sequence of str
        Models that the prediction was made with.
    shadows : sequence of str
        Shadow models.
    root : Path
        Cohort folder.
    run : Path
        Run folder of the prediction.
    place : Path
        The watch folder of this cohort; made when absent.
    options : ExecutionOptions
        Number of processes and limits for the shadows; by default they run in this process.

    Returns
    -------
    rows : list of Watched
        The written rows: one for every new man and model.
    failed : list of str
        Shadow models that could score nothing, each with the reason.

    Raises
    ------
    CadError
        When a model is among both ``models`` and ``shadows``, or when the prediction was made with
        other models.
    """
    require_apart(models, shadows)
    with claimed(place, WATCHED), stage(place) as scratch:
        night = day_of(read_record(RunFolder(run)))
        rows, failed = watch_cohort(models, shadows, root, run, scratch, night, options)
        path = place / f"{night}-{run.resolve().name}.json"
        rows_of_new_men = new_men(rows, path)
        write_rows(path, rows_of_new_men)
    return rows_of_new_men, failed


def _scored_cohort(model: str, root: Path, out: Path, options: ExecutionOptions) -> Judged:
    """Score a cohort with one model and write the run folder; return scores and measures."""
    bundle = load_bundle(find("models", model))
    with _locked_run_folder(out, "predict", options):
        loaded = _loaded_for_bundle(bundle, root, out, options)
        _, _, _, judged = _score_with_model(bundle, loaded)
        return judged


def _loaded_for_bundle(bundle: Bundle, root: Path, out: Path, options: ExecutionOptions) -> Loaded:
    request: JsonObject = {"models": basis([bundle])}
    return load(shared_settings([bundle]), root, out, options, "predict", basis=request)


def _score_with_model(
    bundle: Bundle, loaded: Loaded
) -> tuple[Measured, Extracted, Aggregated, Judged]:
    """Score a cohort with one model in a run folder that this process has locked."""
    measured = measure(loaded)
    extracted, aggregated, predicted = _predicted([bundle], loaded, measured)
    judged = decide_run(loaded, measured.failures, predicted)
    emit(loaded, measured, judged)
    return measured, extracted, aggregated, judged


def _predicted(
    bundles: Sequence[Bundle], loaded: Loaded, measured: Measured, transductive: bool = False
) -> tuple[Extracted, Aggregated, Judged]:
    """Score the measured regions by the models of the bundles.

    Return the features, the features with labels, and the predictions. If no region can be scored,
    this is written to the run folder and an error is raised.
    """
    begin(loaded, measured)
    extracted = extract(loaded, measured, first_scale(bundles))
    aggregated = aggregate(loaded, extracted)
    try:
        predicted = predict(loaded, extracted, aggregated, bundles, measured.failures, transductive)
    except NoRegionScored as error:
        nothing_scored = NothingScored(error.problem, hint=error.hint)
        nothing_scored.emitted = emit_nothing(loaded, measured, error.regions)
        raise nothing_scored from error
    return extracted, aggregated, predicted


@contextmanager
def _locked_run_folder(out: Path, kind: Kind, options: ExecutionOptions) -> Iterator[None]:
    """Keep other processes out of a run folder, and set this process up to compute the run.

    Both end with the ``with`` block. A folder of another kind than ``kind`` is refused.
    """
    with claimed(out, RUNS[kind]), workplace(options):
        yield


def _costs(decision: str | None) -> DecisionSettings | None:
    if decision is None:
        return None
    return read_settings(DecisionSettings, find("configs/decision", decision, ".yaml"))
