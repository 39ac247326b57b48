"""Compute probabilities of cancer of every region and man, from beliefs and other evidence.

The belief is the probability that readers would call the region malignant. This is the only module
that computes the column ``probability``. If the training has histology, the probability comes from
the joint model of regions and men (:mod:`cad.learning.joint_model`). Otherwise the column holds the
belief, and the column ``probability_of`` says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import expit

from cad.base.errors import CadError
from cad.folders.run_folder.schema import HISTOLOGY, READERS
from cad.folders.run_folder.tables import RANGE
from cad.learning.evaluation.decisions.patient_level import truth_of_men
from cad.learning.evaluation.folds.crossval import OutOfFold
from cad.learning.evaluation.measures.centring import (
    base_log_odds,
    centred_log_odds,
    ranked,
    spread_of_log_odds,
    stretches,
)
from cad.learning.joint_model import (
    JointModel,
    JointPrediction,
    MenAndRegions,
    contradiction,
    fit_joint,
    from_dict,
    left_out,
    of_arrays,
    readers_logit,
    weight_of_men,
)
from cad.run.model.bundle import Bundle, using

EVIDENCE = (
    "participant_id",
    "readers_mean",
    "truth",
    "age",
    "psa_density",
    "man_truth",
)
"""Columns that a joint model needs besides the belief, for its fit or its prediction."""
BELIEF_ONLY = "the training has no histology: the numbers are what readers would say, not cancer"


@dataclass(frozen=True)
class Risk:
    """Hold the probabilities of regions and men.

    Parameters
    ----------
    regions : DataFrame, shape (n, ...)
        Columns ``probability, probability_of, probability_low, probability_high,
        probability_images, patient_probability``. In a validation also ``centred`` and
        ``centred_images``: log-odds less the base log-odds of the model that leaves the man out, in
        units of this model's spread. By these log-odds regions of different men can be ranked.
        ``shifted`` is ``centred`` without the units: the scale of the model of all men.
    men : DataFrame
        Table indexed by ``participant_id``, with the columns ``probability, probability_of,
        probability_low, probability_high, probability_images, unknown, truth, age, psa,
        psa_density, model``. In a validation also ``rank``, the share of the men of the fit to whom
        the model that leaves the man out gives a lower probability, and ``centred``, log-odds less
        the base log-odds of that model. Men are ordered by the first, and thresholds chosen on the
        second.
    joint : JointModel or None
        In a validation: the joint model fitted to all men; None without histology.
    notes : tuple of str
        Sentences on what limits the meaning of the probabilities.
    """

    regions: pd.DataFrame
    men: pd.DataFrame
    joint: JointModel | None = None
    notes: tuple[str, ...] = field(default=())


def evidence(rows: pd.DataFrame, belief: np.ndarray) -> tuple[MenAndRegions, pd.Index]:
    """Return rows of regions in the form that the joint model takes, and the names of the men.

    Parameters
    ----------
    rows : DataFrame, shape (n, ...)
        The columns ``EVIDENCE``. ``readers_mean`` is a probability, ``truth`` 1 or 0, ``age`` in
        years and ``psa_density`` in ng/mL2. ``man_truth`` is 1 or 0 by the histology of the whole
        prostate, where it was examined beyond the outlined regions. Values are NaN where unknown.
    belief : ndarray, shape (n,)
        Belief of each region. In a validation each fold has its own share of malignant regions,
        which shifts its beliefs. Give such beliefs without this shift
        (:attr:`cad.learning.evaluation.OutOfFold.on_common_base`).

    Returns
    -------
    data : MenAndRegions
        The men and their regions. ``age`` is in decades, so 70 years are 7.0, and the density is a
        logarithm. The joint model's weights then have similar sizes.
    names : Index of str
        ``participant_id`` of each man, in the order of ``data``.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"participant_id": ["sub-2", "sub-1"], "truth": [1.0, 0.0]})
    >>> rows = rows.assign(readers_mean=0.5, age=70.0, psa_density=0.15, man_truth=np.nan)
    >>> data, names = evidence(rows, np.array([0.6, 0.2]))
    >>> names.tolist(), data.man.tolist(), data.age.tolist()
    (['sub-1', 'sub-2'], [1, 0], [7.0, 7.0])
    """
    names, man_of_row = np.unique(rows["participant_id"].to_numpy(str), return_inverse=True)
    of_men = rows.groupby(rows["participant_id"].astype(str))[["age", "psa_density", "man_truth"]]
    stated = of_men.first().reindex(names)
    # The joint model takes the logarithm of the PSA density, and age in decades. Its weights then
    # have similar sizes. NumPy would warn of a density that is not above 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.log(stated["psa_density"].to_numpy(float))
    data = of_arrays(
        belief,
        man_of_row.astype(int),
        len(names),
        readers=readers_logit(rows["readers_mean"].to_numpy(float)),
        truth=rows["truth"].to_numpy(float),
        density=density,
        age=stated["age"].to_numpy(float) / 10,
        truth_of_man=stated["man_truth"].to_numpy(float),
    )
    return data, pd.Index(names, name="participant_id")


def validated_risk(rows: pd.DataFrame, teaching: np.ndarray, seed: int) -> Risk:
    """Give every region and man a probability by a joint model that was fitted without this man.

    Parameters
    ----------
    rows : DataFrame, shape (n, ...)
        The columns ``EVIDENCE`` of all rows of the validation, and the out-of-fold ``belief``.
    teaching : ndarray, shape (n,)
        The same beliefs without the base rates of their folds
        (:attr:`cad.learning.evaluation.OutOfFold.on_common_base`).
    seed : int
        Seed of the random division of more than 100 men into groups that are left out in turn.

    Returns
    -------
    Risk
        Probabilities with their ranges of each row of ``rows`` and of each man, and the joint model
        fitted to all men. Where no joint model can be fitted, the probability of a region is its
        belief, probabilities of men and all ranges are NaN, ``joint`` is None and a note says so.

    Examples
    --------
    Eight men have one region each. Half of the men have cancer, and their beliefs are higher:

    >>> import numpy as np
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"participant_id": [f"sub-{number}" for number in range(1, 9)]})
    >>> rows["truth"] = [0.0, 1.0] * 4
    >>> rows["belief"] = [0.1, 0.8] * 4
    >>> rows = rows.assign(readers_mean=rows["belief"], age=65.0, psa_density=0.1, man_truth=np.nan)
    >>> risk = validated_risk(rows, rows["belief"].to_numpy(), seed=0)
    >>> (risk.regions["probability"] > 0.5).tolist()[:4]
    [False, True, False, True]

    Without histology nothing is learned about cancer, and a note says so:

    >>> unknown = rows.assign(truth=np.nan)
    >>> risk = validated_risk(unknown, rows["belief"].to_numpy(), seed=0)
    >>> risk.regions["probability"].tolist()[:2], BELIEF_ONLY in risk.notes[0]
    ([0.1, 0.8], True)
    """
    data, names = evidence(rows, teaching)
    try:
        joint = fit_joint(data)
        left_out_predictions = _each_left_out(data, seed)
    except CadError as error:
        return _risk_without_joint(rows, names, (f"{error.problem}: {BELIEF_ONLY}",))
    predicted = left_out_predictions.predicted
    regions = _predicted_region_columns(rows, data, predicted)
    men = _man_columns(rows, names, predicted)
    # The models that leave men out were fitted to different men, and so have different bases. They
    # are all moved to the base of a model of all men.
    common_base_of_regions = base_log_odds(data.truth)
    regions["shifted"] = centred_log_odds(
        predicted.probability, left_out_predictions.base_of_regions, common_base_of_regions
    )
    regions["centred"] = centred_log_odds(
        predicted.probability,
        left_out_predictions.base_of_regions,
        common_base_of_regions,
        left_out_predictions.stretch_of_regions,
    )
    regions["centred_images"] = centred_log_odds(
        predicted.probability_images,
        left_out_predictions.base_of_regions,
        common_base_of_regions,
        left_out_predictions.stretch_of_images,
    )
    common_base_of_men = base_log_odds(data.histology_of_men())
    men["centred"] = centred_log_odds(
        predicted.man, left_out_predictions.base_of_men, common_base_of_men
    )
    men["rank"] = left_out_predictions.rank_of_men
    return Risk(regions, men, joint, joint.notes)


@dataclass(frozen=True)
class _LeftOut:
    """Hold predictions by models that were fitted without the man, and how to compare them.

    Parameters
    ----------
    predicted : JointPrediction
        Probabilities of n regions and m men.
    base_of_regions, base_of_men : ndarray, shapes (n,) and (m,)
        Log-odds of the share of malignant regions, or of men with cancer, in the fit of the
        predicting model.
    rank_of_men : ndarray, shape (m,)
        Share of the men of the fit to whom the predicting model gives a lower probability than to
        the man who was left out.
    stretch_of_regions, stretch_of_images : ndarray, shape (n,)
        Factors by which the difference of a region's log-odds from the base is multiplied, so that
        all models have the same standard deviation of log-odds in their fits. The second is for the
        probability from images alone.
    """

    predicted: JointPrediction
    base_of_regions: np.ndarray
    base_of_men: np.ndarray
    rank_of_men: np.ndarray
    stretch_of_regions: np.ndarray
    stretch_of_images: np.ndarray


def _each_left_out(data: MenAndRegions, seed: int) -> _LeftOut:
    """Predict every man by a model that was fitted without him."""
    n_regions = len(data.belief)
    truth_of_men = data.histology_of_men()
    values_of_regions = {
        name: np.full(n_regions, np.nan)
        for name in ("probability", "low", "high", "probability_images")
    }
    values_of_men = {
        name: np.full(data.men, np.nan)
        for name in ("man", "man_low", "man_high", "man_images", "leak")
    }
    notes = [""] * data.men
    base_of_regions = np.zeros(n_regions)
    base_of_men = np.zeros(data.men)
    rank_of_men = np.zeros(data.men)
    number_of_model = np.zeros(data.men, dtype=int)
    spreads_of_probability = []
    spreads_of_images = []
    # Each model fills the places of the men whom it leaves out, and of their regions.
    for number, (man_is_out, model) in enumerate(left_out(data, seed)):
        region_is_out = man_is_out[data.man]
        number_of_model[man_is_out] = number

        # The men of the fit, with whom the men who are left out are compared. Regions and men
        # without histology taught the model nothing, and are not counted.
        in_fit = model.predict(data.of_men(~man_is_out))
        region_of_fit_has_truth = np.isfinite(data.truth[~region_is_out])
        man_of_fit_has_truth = np.isfinite(truth_of_men[~man_is_out])
        spreads_of_probability.append(
            spread_of_log_odds(in_fit.probability[region_of_fit_has_truth])
        )
        spreads_of_images.append(
            spread_of_log_odds(in_fit.probability_images[region_of_fit_has_truth])
        )
        base_of_regions[region_is_out] = base_log_odds(data.truth[~region_is_out])
        base_of_men[man_is_out] = base_log_odds(truth_of_men[~man_is_out])

        predicted = model.predict(data.of_men(man_is_out))
        for name, values in values_of_regions.items():
            values[region_is_out] = getattr(predicted, name)
        for name, values in values_of_men.items():
            values[man_is_out] = getattr(predicted, name)
        for man, note in zip(np.flatnonzero(man_is_out), predicted.notes, strict=True):
            notes[man] = note
        rank_of_men[man_is_out] = ranked(predicted.man, in_fit.man[man_of_fit_has_truth])
    model_of_region = number_of_model[data.man]
    return _LeftOut(
        predicted=JointPrediction(**values_of_regions, **values_of_men, notes=tuple(notes)),
        base_of_regions=base_of_regions,
        base_of_men=base_of_men,
        rank_of_men=rank_of_men,
        stretch_of_regions=stretches(spreads_of_probability)[model_of_region],
        stretch_of_images=stretches(spreads_of_images)[model_of_region],
    )


def predicted_risk(
    rows: pd.DataFrame,
    bundles: Sequence[Bundle],
    prevalence: float | None,
    latest: np.ndarray | None = None,
) -> Risk:
    """Give every region and man a probability by the joint model of the bundle that scored them.

    Two studies of a man may show the same lesion. So the man's probability is computed from his
    latest study alone. The regions of an earlier study get their probabilities as if this study
    were his only one.

    Nothing is fitted to the cohort. A stated prevalence moves all log-odds of a bundle's joint
    model by one number. This number is found on the men of the model's training, so that no man's
    probability depends on the other men of the cohort.

    Parameters
    ----------
    rows : DataFrame, shape (n, ...)
        The columns ``EVIDENCE``, ``belief`` and ``model``, the name of the bundle that scored each
        region.
    bundles : sequence of Bundle
        The models.
    prevalence : float or None
        Share of men with cancer where the models are used; None leaves the models as they were
        trained.
    latest : ndarray of bool, shape (n,), optional
        Which rows are of their man's latest study. ``rows`` then have ``study_id``, too. A man
        without a row of his latest study has no probability. By default all rows of a man are of
        one study.

    Returns
    -------
    Risk
        Probabilities with their ranges of each row of ``rows`` and of each man; ``joint`` is None.
        Where a bundle has no joint model, the probability of a region is its belief and
        ``probability_of`` is ``readers``. The ranges and the probability of the man are then NaN.

    Examples
    --------
    A region whose model is not among the bundles keeps its belief:

    >>> import numpy as np
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"participant_id": ["sub-1"], "belief": [0.4], "model": ["absent"]})
    >>> rows = rows.assign(truth=np.nan, man_truth=np.nan, age=65.0, psa_density=0.1)
    >>> risk = predicted_risk(rows, [], None)
    >>> risk.regions["probability"].tolist(), risk.regions["probability_of"].tolist()
    ([0.4], ['readers'])
    """
    if latest is None:
        latest = np.ones(len(rows), dtype=bool)
    model_of_row = rows["model"].to_numpy(str)
    regions = _belief_columns(rows)
    names = pd.Index(np.unique(rows["participant_id"].to_numpy(str)), name="participant_id")
    men = _men_without_probability(rows.loc[latest], names)
    notes: list[str] = []
    for bundle in bundles:
        scored_by_bundle = model_of_row == bundle.name
        if not scored_by_bundle.any():
            continue
        joint = joint_of(bundle, prevalence)
        if joint is None:
            notes.append(f"model {bundle.name}: {lacks_joint(bundle)}")
            if prevalence is not None:
                notes.append(
                    f"model {bundle.name}: the stated prevalence of {prevalence:.3g} moves nothing:"
                    " its numbers are what readers would say"
                )
            continue
        # A bundle's joint model gets only the regions that this bundle scored, because the beliefs
        # of different bundles do not mean the same.
        is_earlier = scored_by_bundle & ~latest
        is_latest = scored_by_bundle & latest
        if is_earlier.any():
            earlier_rows = rows.loc[is_earlier]
            # Each earlier study is treated as if it were the only study of another man.
            earlier_rows = earlier_rows.assign(participant_id=earlier_rows["study_id"])
            data, _ = evidence(earlier_rows, earlier_rows["belief"].to_numpy(float))
            predicted = joint.predict(data)
            _require_probabilities(data, predicted, bundle)
            columns = _predicted_region_columns(earlier_rows, data, predicted)
            # The man's probability is computed from his latest study alone.
            columns["patient_probability"] = np.nan
            regions.loc[is_earlier, list(columns)] = columns.to_numpy()
        latest_rows = rows.loc[is_latest]
        if latest_rows.empty:
            continue
        data, names_of_model = evidence(latest_rows, latest_rows["belief"].to_numpy(float))
        predicted = joint.predict(data)
        _require_probabilities(data, predicted, bundle)
        columns = _predicted_region_columns(latest_rows, data, predicted)
        regions.loc[is_latest, list(columns)] = columns.to_numpy()
        columns_of_men = _man_columns(latest_rows, names_of_model, predicted)
        men.loc[names_of_model, list(columns_of_men)] = columns_of_men.to_numpy()
        notes += [f"model {bundle.name}: {note}" for note in joint.notes]
        if prevalence is not None:
            notes.append(
                f"model {bundle.name}: probabilities moved to the stated prevalence of "
                f"{prevalence:.3g} of men; in its training it was "
                f"{joint.taught.prevalence_of_men:.3g}"
            )
            notes += _note_of_contradiction(predicted.man, bundle, prevalence)
    # Cancer that was proved by biopsy in an earlier study also counts as truth of the man.
    men["truth"] = _truth_of_each_man(rows).reindex(names)
    # Numbers and texts were written together, so that columns may hold Python objects. They get
    # their types back.
    return Risk(
        regions=regions.infer_objects(),
        men=men.infer_objects(),
        joint=None,
        notes=tuple(notes),
    )


def joint_of(bundle: Bundle, prevalence: float | None) -> JointModel | None:
    """Return a bundle's joint model, moved to a stated prevalence; None where it has none.

    Parameters
    ----------
    bundle : Bundle
        The model.
    prevalence : float or None
        Share of men with cancer; None leaves the model as it was trained.

    Raises
    ------
    CadError
        For a prevalence of 0 or 1, for a training without men of both kinds (with and without
        cancer), and for a bundle whose joint model is not valid.
    """
    with using(bundle):
        content = bundle.metadata.get("joint")
        if content is None:
            return None
        joint = from_dict(content)
        if prevalence is None:
            return joint
        rows = bundle.training.reindex(columns=list(EVIDENCE))
        data, _ = evidence(rows, bundle.training["out_of_fold"].to_numpy(float))
        try:
            weight = weight_of_men(data, prevalence)
        except CadError as error:
            raise CadError(
                error.problem,
                hint="leave decision.prevalence out, or take a model that learned from men with and"
                " without cancer",
            ) from error
        return joint.shifted(prevalence, data, weight)


def risk_of_places(joint: JointModel, belief: np.ndarray, man: pd.Series) -> np.ndarray:
    """Return the probability of cancer at places in one man's prostate, from images alone.

    Parameters
    ----------
    joint : JointModel
        The model that leads from beliefs to the probabilities of regions and men.
    belief : ndarray, shape (n,)
        Belief of a region at each place.
    man : Series
        ``age`` in years and ``psa_density`` in ng/mL2, NaN where unknown.

    Returns
    -------
    ndarray, shape (n,)
        Probability at each place.

    Examples
    --------
    At a place with a higher belief, cancer is more probable:

    >>> import numpy as np
    >>> import pandas as pd
    >>> training = of_arrays([0.1, 0.8] * 4, range(8), 8, truth=[0, 1] * 4)
    >>> man = pd.Series({"age": 65.0, "psa_density": np.nan})
    >>> low, high = risk_of_places(fit_joint(training), np.array([0.1, 0.8]), man)
    >>> bool(low < 0.5 < high)
    True
    """
    # NumPy would warn of a density that is not above 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.log([float(man["psa_density"])])
    age_in_decades = float(man["age"]) / 10
    all_of_man_0 = np.zeros(len(belief), dtype=int)
    data = of_arrays(belief, all_of_man_0, 1, density=density, age=[age_in_decades])
    return joint.predict(data).probability_images


def decides_on_real_men(bundle: Bundle) -> bool:
    """Tell whether a model may decide on a real man.

    A model that was trained on simulated patients may do so only after it was recalibrated on real
    men, of whom at least 30 are needed.

    Parameters
    ----------
    bundle : Bundle
        The model.

    Returns
    -------
    bool
        True for a model of real men, and for a model of simulated men that was recalibrated on real
        men.
    """
    if not bundle.metadata["training"]["simulated"]:
        return True
    # A model that was not recalibrated has no such entry. If the entry does not say on whom the
    # model was recalibrated, the model may not decide either.
    recalibration = bundle.metadata.get("recalibration") or {}
    return "simulated" in recalibration and not recalibration["simulated"]


def lacks_joint(bundle: Bundle) -> str:
    """Say why a bundle's numbers are beliefs and not probabilities of cancer.

    Parameters
    ----------
    bundle : Bundle
        A model without a joint model.

    Returns
    -------
    str
        The reason as a clause, without a full stop.
    """
    if "joint" not in bundle.metadata:
        return (
            "written by an earlier version, without the model of regions and men: its numbers are "
            "what readers would say, not cancer; train it again"
        )
    return BELIEF_ONLY


def _note_of_contradiction(
    probability_of_men: np.ndarray, bundle: Bundle, prevalence: float
) -> list[str]:
    """Return a list with a note if the men of a cohort contradict the stated prevalence, else
    empty.

    ``probability_of_men`` has each man's probability of cancer by the model, which was shifted to
    the prevalence.
    """
    sentence = contradiction(probability_of_men, prevalence)
    if not sentence:
        return []
    return [
        f"model {bundle.name}: {sentence}: either is wrong, or the model does not fit here (cad "
        "recalibrate)"
    ]


def _require_probabilities(data: MenAndRegions, predicted: JointPrediction, bundle: Bundle) -> None:
    """Raise an error for a region that gets no probability from the joint model for its belief."""
    lacks_probability = np.isfinite(data.belief) & ~np.isfinite(predicted.probability)
    if lacks_probability.any():
        raise CadError(
            f"the joint model of {bundle.name} gives {int(lacks_probability.sum())} of "
            f"{len(lacks_probability)} regions no probability, although they have a belief",
            hint="fetch the bundle again from its source, or train again",
        )


def _predicted_region_columns(
    rows: pd.DataFrame, data: MenAndRegions, predicted: JointPrediction
) -> pd.DataFrame:
    """Return the result columns of regions, computed from the prediction of the joint model."""
    low, high = RANGE
    return pd.DataFrame(
        {
            "probability": predicted.probability,
            "probability_of": np.where(np.isfinite(predicted.probability), HISTOLOGY, ""),
            low: predicted.low,
            high: predicted.high,
            "probability_images": predicted.probability_images,
            "patient_probability": predicted.man[data.man],
        },
        index=rows.index,
    )


def _man_columns(rows: pd.DataFrame, names: pd.Index, predicted: JointPrediction) -> pd.DataFrame:
    """Return the result columns of men, computed from the prediction of the joint model."""
    low, high = RANGE
    men = _men_without_probability(rows, names)
    men["probability"] = predicted.man
    men["probability_of"] = np.where(np.isfinite(predicted.man), HISTOLOGY, "")
    men[low] = predicted.man_low
    men[high] = predicted.man_high
    men["probability_images"] = predicted.man_images
    men["unknown"] = list(predicted.notes)
    return men


def _risk_without_joint(rows: pd.DataFrame, names: pd.Index, notes: tuple[str, ...]) -> Risk:
    """Return the results of regions and men where no joint model can be fitted to histology.

    Regions then have their beliefs as probabilities, and men have no probability.
    """
    return Risk(
        regions=_belief_columns(rows),
        men=_men_without_probability(rows, names),
        joint=None,
        notes=notes,
    )


def _belief_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the result columns of regions, with each belief in the place of a probability."""
    low, high = RANGE
    belief = rows["belief"].to_numpy(float)
    return pd.DataFrame(
        {
            "probability": belief,
            "probability_of": np.where(np.isfinite(belief), READERS, ""),
            low: np.nan,
            high: np.nan,
            "probability_images": belief,
            "patient_probability": np.nan,
        },
        index=rows.index,
    )


def _men_without_probability(rows: pd.DataFrame, names: pd.Index) -> pd.DataFrame:
    """Return a table of men with their age, PSA, truth and model, but without probabilities.

    A run without a joint model keeps this table. Otherwise probabilities are added to it.
    """
    low, high = RANGE
    by_man = rows.groupby(rows["participant_id"].astype(str))
    men = pd.DataFrame(index=names)
    men["probability"] = np.nan
    men["probability_of"] = READERS
    men[low] = np.nan
    men[high] = np.nan
    men["probability_images"] = np.nan
    men["unknown"] = ""
    men["truth"] = _truth_of_each_man(rows).reindex(names)
    for name in ("age", "psa", "psa_density"):
        men[name] = by_man[name].first().reindex(names) if name in rows else np.nan
    men["model"] = ""
    if "model" in rows:  # the rows of a prediction; in a validation every fold has its model
        # Regions that no model could score are left out, so that a man gets the model of another.
        scored = rows[rows["belief"].notna()]
        first_model_of_men = scored.groupby(scored["participant_id"].astype(str))["model"].first()
        men["model"] = first_model_of_men.reindex(names).fillna("")
    return men


def _truth_of_each_man(rows: pd.DataFrame) -> pd.Series:
    """Return the truth of each man: by the histology of his whole prostate, else of his regions."""
    patients = rows["participant_id"].to_numpy(str)
    of_regions = truth_of_men(rows["truth"].to_numpy(float), patients)  # sorted by patient
    of_prostates = rows.groupby(rows["participant_id"].astype(str))["man_truth"].first()
    return of_prostates.fillna(pd.Series(of_regions, index=np.unique(patients)))


def on_common_base(risk: Risk, folds: OutOfFold) -> np.ndarray:
    """Return a validation's probabilities on the scale of a model that leaves nobody out.

    The models of the folds were trained at slightly different shares of malignant regions, which
    moves their probabilities. This shift is taken out. Whatever is chosen for new patients, such as
    a threshold, is chosen on the result.

    Parameters
    ----------
    risk : Risk
        Result of :func:`validated_risk`.
    folds : OutOfFold
        The validation's folds. Where there is no histology, their beliefs take the place of
        probabilities.

    Returns
    -------
    ndarray, shape (n,)
        Probability of each row of the validation, NaN where there is none.
    """
    if risk.joint is None:
        return folds.on_common_base
    probability = risk.regions["probability"].to_numpy(float)
    shifted = expit(risk.regions["shifted"].to_numpy(float))
    return np.where(np.isfinite(probability), shifted, np.nan)
