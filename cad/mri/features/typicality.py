"""Tell whether a region is like the training regions, by limits for groups of features.

An average over all features would hide one image in a wrong unit among hundreds of columns. So
features are judged in groups: the families (such as ADC gradient, or Tofts), the level of an image
(its means and percentiles), and the modalities. Every feature has its own spread in the training,
to each side of the median, and a deviation is measured in this spread. The score of a group is the
root mean square of its features' deviations. A region is as unusual as its most unusual group.

A fault of an image affects all regions of a study, and an unusual region only itself. Therefore the
mean deviation of a study's regions is judged as well as each region. The more regions a study has,
the narrower are the limits of this mean. The limits come from training patients that were held out
when the spreads were learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject
from cad.mri.columns import Column

# Share of held-out training regions, and of held-out studies, that may be flagged as unlike the
# training. The aim is that at most 5 % of new regions are flagged. The share here is lower, because
# regions of one patient are alike, and the limits themselves are uncertain.
FLAGGED = 0.02
# Numbers of regions in a study for which there are separate limits. For a study with more than 4
# regions, the limits for 4 regions hold.
_COUNTS = (1, 2, 3, 4)
_FOLDS = 10
# Share of the training's values below the lower percentile from which a spread is computed, and
# above the upper one.
_TAIL = 0.10
# Distance from the median to the 10th or 90th percentile of a normal distribution, in standard
# deviations. The same distance in the training, divided by this number, is the spread of a feature.
_NORMAL_TAIL = 1.2816
# Largest deviation that is told from larger ones, in standard deviations.
_CLIP = 12.0


@dataclass(frozen=True)
class Deviation:
    """Say how one group of features departs from training.

    Parameters
    ----------
    group : str
        Name of the group, such as ``T2`` or ``T2 intensity``.
    size : float
        Typical deviation of the group's features, in standard deviations.
    direction : str
        ``below`` or ``above`` the training; ``beside`` where features of the group lie on both
        sides.
    regions : int
        1 if the region itself deviates; otherwise the number of the study's regions, of which the
        mean deviates.
    """

    group: str
    size: float
    direction: str
    regions: int = 1

    def __str__(self) -> str:
        regions = f" (mean of {self.regions} regions)" if self.regions > 1 else ""
        return f"{self.group}: {self.size:.1f} SD {self.direction} the training regions{regions}"


# A pair: the largest ratio of a group's score to its limit, and all groups whose ratio is above 1,
# each with its ratio.
Beyond = tuple[float, tuple[tuple[float, Deviation], ...]]


@dataclass(frozen=True)
class Judgement:
    """Hold how unlike the training one region is.

    Parameters
    ----------
    score : float
        Largest ratio of a group's deviation to its limit; above 1 the region is flagged.
    deviations : tuple of Deviation
        Groups beyond their limit, the worst first. The group deviates in the region itself or in
        the mean of its study. Empty for a region that is not flagged.
    features : tuple of (str, float)
        The three features that are furthest out, in signed standard deviations.
    """

    score: float
    deviations: tuple[Deviation, ...]
    features: tuple[tuple[str, float], ...]

    @property
    def flagged(self) -> bool:
        """Return whether the region is flagged as unlike the training regions."""
        return self.score > 1.0


@dataclass(frozen=True, eq=False)
class Typicality:
    """Hold how training regions are spread, and how far a region may deviate before it is flagged.

    Parameters
    ----------
    features : tuple of str
        Names of the features that vary in the training.
    middle, low, high : ndarray, shape (n_features,)
        Median, and the standard deviation below and above it.
    limits : dict of str to tuple of float
        For each group four limits of its score: for a single region, and for the mean of 2, of 3
        and of 4 regions of a study. A score above its limit is flagged.
    columns : mapping of str to Column
        Column of each feature, which says its groups; a feature without a column is in no group.
    """

    features: tuple[str, ...]
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    limits: dict[str, tuple[float, ...]]
    columns: Mapping[str, Column]

    @classmethod
    def fit(
        cls,
        X: pd.DataFrame,
        patients: Sequence[str] | np.ndarray,
        columns: Mapping[str, Column],
        flagged: float = FLAGGED,
    ) -> Typicality:
        """Learn how far features may deviate before a region is flagged as unlike the training.

        Limits are such that only a small share of held-out regions and studies is flagged.

        Parameters
        ----------
        X : DataFrame, shape (n_regions, n_features)
            Training rows; NaN where a feature is missing.
        patients : sequence of str, length n_regions
            Patient of each row; all regions of a patient are held out together.
        columns : mapping of str to Column
            Column of each feature, which says its groups.
        flagged : float
            Share of held-out training regions, and of held-out studies, that is flagged.

        Returns
        -------
        Typicality
            Median and spread of each feature that varies, and the limits of each group of features.
            A group without a finite limit above 0 is left out.

        Raises
        ------
        CadError
            For fewer than 3 patients, because no patient can be held out.
        """
        patient_of = np.asarray(patients, str)
        patient_names = np.unique(patient_of)
        if len(patient_names) < 3:
            raise CadError(
                f"limits need regions of at least 3 patients, found {len(patient_names)}"
            )
        # Objects without limits give deviations and scores: one of all patients, whose spreads are
        # kept, and one for each fold, whose patients are left out.
        whole = cls(*_spread(X), limits={}, columns=columns)
        # Ten folds are enough. If one patient at a time were left out, the spreads of features
        # would be slightly more exact. But the limits depend on the tails of the scores, which
        # would be no better known.
        n_folds = min(_FOLDS, len(patient_names))
        fold_of = dict(zip(patient_names, np.arange(len(patient_names)) % n_folds, strict=True))
        folds = np.array([fold_of[name] for name in patient_of])
        scores_by_count: dict[int, list[pd.DataFrame]] = {count: [] for count in _COUNTS}
        for fold in np.unique(folds):
            of_other_folds = cls(*_spread(X[folds != fold]), limits={}, columns=columns)
            for patient in np.unique(patient_of[folds == fold]):
                z = of_other_folds.deviations(X[patient_of == patient])
                for count in _COUNTS:
                    mean_deviations = np.stack(
                        [_mean_deviation(z[rows]) for rows in _similar_regions(z, count)]
                    )
                    scores = pd.DataFrame(of_other_folds._scores(mean_deviations))
                    scores = scores.reindex(columns=list(whole.groups()))
                    # Scores of single regions (count 1) have the weight 1 for each region. Scores
                    # of means of several regions have a total weight of 1 for each patient.
                    weight = 1.0 if count == 1 else 1.0 / len(mean_deviations)
                    scores_by_count[count].append(scores.assign(_weight=weight))
        by_count = [_group_limits(pd.concat(scores_by_count[count]), flagged) for count in _COUNTS]
        limits_by_group = {}
        for group in by_count[0]:
            limits_by_group[group] = tuple(by_group[group] for by_group in by_count)
        # A group of features without a finite limit above 0 is left out. Held-out regions have no
        # score for such a group, or a score of 0.
        usable = {}
        for group, of_counts in limits_by_group.items():
            if np.isfinite(of_counts).all() and min(of_counts) > 0:
                usable[group] = of_counts
        return cls(whole.features, whole.middle, whole.low, whole.high, usable, columns)

    def groups(self) -> dict[str, np.ndarray]:
        """Return, by name of the group, the positions of its features in ``features``."""
        places_by_group: dict[str, list[int]] = {}
        for number, name in enumerate(self.features):
            if name in self.columns:
                for group in self.columns[name].groups:
                    places_by_group.setdefault(group, []).append(number)
        return {group: np.array(places) for group, places in places_by_group.items()}

    def deviations(self, X: pd.DataFrame) -> np.ndarray:
        """Return each value's distance from the training median, shape (n_regions, n_features).

        The unit is the training's standard deviation on the value's side of the median. Distances
        are clipped at 12 of these.
        """
        # A feature that ``X`` lacks becomes a column of NaN, and so do its deviations.
        gap = X.reindex(columns=list(self.features)).to_numpy(float) - self.middle
        # A feature that hardly varies in the training may deviate by thousands of standard
        # deviations with a new scanner. Deviations are therefore clipped: _CLIP standard deviations
        # say as much.
        scaled = np.where(gap < 0, gap / self.low, gap / self.high)
        return np.asarray(np.clip(scaled, -_CLIP, _CLIP))

    def unusual(self, X: pd.DataFrame) -> dict[str, np.ndarray]:
        """Return how far each group of features lies from the training, by name of the group.

        Parameters
        ----------
        X : DataFrame, shape (n_regions, n_features)
            Features by name, as in training; missing values are left out.

        Returns
        -------
        dict of str to ndarray, shape (n_regions,)
            Root mean square, over the features of the group, of log(1 + deviation). The deviation
            is a feature's distance from the training median, in standard deviations of the
            training. NaN where a region has no feature of the group.
        """
        return self._scores(self.deviations(X))

    def outside(self, X: pd.DataFrame, far: float = 3.0) -> dict[str, np.ndarray]:
        """Return which share of each group's features lies far from the training, by group.

        Parameters
        ----------
        X : DataFrame, shape (n_regions, n_features)
            Features by name, as in training; missing values are left out.
        far : float
            Number of standard deviations from the training median beyond which a value lies far.

        Returns
        -------
        dict of str to ndarray, shape (n_regions,)
            Shares between 0 and 1; NaN where a region has no feature of the group.
        """
        z = self.deviations(X)
        shares = {}
        for group, columns in self.groups().items():
            of_group = z[:, columns]
            finite = np.isfinite(of_group)
            # A missing feature has the deviation 0 here, and so does not lie far.
            beyond = (np.abs(np.where(finite, of_group, 0.0)) > far).sum(axis=1)
            n_finite = finite.sum(axis=1)
            # The maximum with 1 avoids a warning of 0 / 0; such regions get NaN.
            shares[group] = np.where(n_finite > 0, beyond / np.maximum(n_finite, 1), np.nan)
        return shares

    def judge(
        self, X: pd.DataFrame, studies: Sequence[str] | np.ndarray | None = None
    ) -> list[Judgement]:
        """Judge how unusual every region is, alone and by the mean of its study's regions.

        The result has one judgement per row, in order.

        Parameters
        ----------
        X : DataFrame, shape (n_regions, n_features)
            Features by name, as in training; missing values are left out.
        studies : sequence of str, length n_regions, optional
            Study of each region; without it every region is judged alone.

        Returns
        -------
        list of Judgement
            One judgement for each row of ``X``, in order. A score above 1 flags the region.
        """
        z = self.deviations(X)
        beyond_alone = self._beyond(z, regions=np.ones(len(z), int))
        # (0.0, ()) stands for no group beyond its limit: it flags nothing.
        beyond_together: list[Beyond] = [(0.0, ())] * len(z)
        if studies is not None:
            study_names, study_of_row, regions_per_study = np.unique(
                np.asarray(studies, str), return_inverse=True, return_counts=True
            )
            study_means = np.stack(
                [_mean_deviation(z[study_of_row == i]) for i in range(len(study_names))]
            )
            beyond_of_study = self._beyond(study_means, regions_per_study)
            for row, study in enumerate(study_of_row):
                # In a study with one region, the mean over regions is the region itself, and is not
                # judged again.
                if regions_per_study[study] > 1:
                    beyond_together[row] = beyond_of_study[study]
        judgements = []
        for row in range(len(z)):
            score_alone, groups_alone = beyond_alone[row]
            score_shared, groups_shared = beyond_together[row]
            # If a group of features deviates in the region itself, the group is not named again for
            # the mean over the study's regions.
            groups_named = {deviation.group for _, deviation in groups_alone}
            ratios_and_deviations = list(groups_alone)
            for ratio, deviation in groups_shared:
                if deviation.group not in groups_named:
                    ratios_and_deviations.append((ratio, deviation))
            ratios_and_deviations.sort(key=lambda group: -group[0])
            deviations = tuple(deviation for _, deviation in ratios_and_deviations)
            # A missing feature counts as 0, so that it is not among the three that deviate most.
            by_deviation = np.argsort(-np.nan_to_num(np.abs(z[row])))[:3]
            furthest = tuple((self.features[i], float(z[row, i])) for i in by_deviation)
            judgements.append(
                Judgement(
                    score=max(score_alone, score_shared), deviations=deviations, features=furthest
                )
            )
        return judgements

    def _scores(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """Return the score of each group for each row of deviations ``z``, shape (n, n_features).

        The score is NaN where all features of the group are missing.

        It is computed from the logarithm of 1 + deviation. One voxel whose fit failed can change a
        skewness by a hundred standard deviations, and must not hide the other features.
        """
        logarithms = _tamed(z)
        return {group: _rms(logarithms[:, columns]) for group, columns in self.groups().items()}

    def _beyond(self, z: np.ndarray, regions: np.ndarray) -> list[Beyond]:
        """Compare rows of deviations with their limits, one result per row.

        Row i of ``z`` is the mean deviation of ``regions[i]`` regions, shape (n_rows, n_features).
        A result is the largest ratio of a group's score to its limit, and the groups beyond their
        limits.
        """
        scores = self._scores(z)
        groups = self.groups()
        beyond = []
        # The largest number of regions with limits of its own is four. A study of seven regions,
        # for example, is compared with the limits for four, which are wider than limits for seven
        # would be.
        limit_place = np.searchsorted(_COUNTS, regions, side="right") - 1
        for row, n_regions in enumerate(regions):
            worst = 0.0
            beyond_limit = []
            for group, limits in self.limits.items():
                score = float(scores[group][row])
                if not np.isfinite(score):  # the row has no feature of this group
                    continue
                ratio = score / limits[limit_place[row]]
                worst = max(worst, ratio)
                if ratio > 1:
                    # The score is the root mean square of log(1 + deviation).
                    deviation = float(np.expm1(score))
                    direction = _far_side(z[row, groups[group]])
                    departure = Deviation(
                        group=group,
                        size=deviation,
                        direction=direction,
                        regions=int(n_regions),
                    )
                    beyond_limit.append((ratio, departure))
            beyond.append((worst, tuple(beyond_limit)))
        return beyond

    def as_dict(self) -> JsonObject:
        """Return features, medians, spreads and limits as a dictionary that JSON can hold."""
        return {
            "features": list(self.features),
            "middle": self.middle.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "limits": {group: list(values) for group, values in self.limits.items()},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], columns: Mapping[str, Column]) -> Typicality:
        """Return the object that the dictionary of :meth:`as_dict` describes.

        Parameters
        ----------
        content : mapping
            Result of :meth:`as_dict`.
        columns : mapping of str to Column
            Column of each feature, which says its groups.

        Raises
        ------
        CadError
            When the dictionary was made by an earlier version of the program, which had limits for
            single regions only.
        """
        # An earlier version stored one number for each group, and not one for each of _COUNTS.
        if any(isinstance(values, float) for values in content["limits"].values()):
            raise CadError(
                "the model's limits of what is like its training are of an earlier version",
                hint="train the model again",
            )
        return cls(
            tuple(content["features"]),
            np.array(content["middle"], float),
            np.array(content["low"], float),
            np.array(content["high"], float),
            {group: tuple(values) for group, values in content["limits"].items()},
            columns,
        )


def _tamed(z: np.ndarray) -> np.ndarray:
    """Return the logarithm of 1 + deviation, with the sign of the deviation."""
    return np.asarray(np.sign(z) * np.log1p(np.abs(z)))


def _mean_deviation(z: np.ndarray) -> np.ndarray:
    """Return for each feature the mean deviation over the regions that have the feature.

    ``z`` has a row of deviations for each region. The mean is taken on a logarithmic scale
    (:func:`_tamed`). It is NaN for a feature that no region has.
    """
    finite = np.isfinite(z)
    total = np.where(finite, _tamed(z), 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 gives NaN for a feature that no region has
        mean_logarithm = total / finite.sum(axis=0)
    # The inverse of _tamed() gives a deviation in standard deviations again.
    return np.asarray(np.sign(mean_logarithm) * np.expm1(np.abs(mean_logarithm)))


def _similar_regions(z: np.ndarray, count: int) -> list[np.ndarray]:
    """Return sets of ``count`` regions of one patient: each region with the regions most like it.

    Readers may outline only one kind of tissue, so that all regions of a study are alike. The
    limits beyond which a study is flagged shall hold for such studies, too.
    """
    # A patient with few regions has one set only: all his regions.
    if len(z) <= count and count > 1:
        return [np.arange(len(z))]
    place = np.nan_to_num(_tamed(z))  # a missing feature counts as if it lay at the median
    squared_distances = ((place[:, None] - place) ** 2).sum(axis=2)
    # A region is the nearest to itself, and so the first of its set.
    return list(np.argsort(squared_distances, axis=1, kind="stable")[:, :count])


def _group_limits(held: pd.DataFrame, flagged: float) -> dict[str, float]:
    """Return the limit of each group of features, from weighted scores of held-out patients.

    A region is flagged if the score of one of its groups is above the group's limit. Groups differ
    in how heavy the tails of their scores are. Each limit therefore begins as an upper quantile of
    the group's own scores. All limits are then multiplied by one factor, with which the share
    ``flagged`` of the held-out regions is flagged.
    """
    weight = held.pop("_weight").to_numpy()
    upper_quantiles = held.apply(lambda scores: _upper(scores.to_numpy(), weight, flagged))
    # A quantile of 0 cannot be a divisor. The limit of such a group becomes infinite, and
    # Typicality.fit() leaves the group out.
    upper_quantiles = upper_quantiles.where(upper_quantiles > 0, np.inf)
    # A region is flagged if any of its groups is beyond its limit. The factor for all limits is
    # therefore computed from the worst group of each region.
    worst = (held / upper_quantiles).max(axis=1).fillna(0.0).to_numpy()
    # The term 1e-9 keeps a region that lies exactly at the limit from being flagged by rounding.
    factor = _upper(worst, weight, flagged) * (1 + 1e-9)
    return {str(group): float(factor * quantile) for group, quantile in upper_quantiles.items()}


def _upper(values: np.ndarray, weight: np.ndarray, flagged: float) -> float:
    """Return the limit that a new value exceeds with at most the probability ``flagged``.

    ``values`` are scores of held-out regions or patients, ``weight`` their weights, shape (n,). The
    method is conformal prediction. With too few values it would have no finite limit. The limit is
    then the largest value, which a new value exceeds with a probability above ``flagged``. Values
    that could not be measured (not finite) are left out.
    """
    finite = np.isfinite(values)
    if not finite.any():
        return float("inf")
    ascending = np.argsort(values[finite], kind="stable")
    weight_up_to = np.cumsum(weight[finite][ascending])
    # The new value, whose place in the order is unknown, adds the weight 1 to the sum of weights.
    target = (1 - flagged) * (weight_up_to[-1] + 1.0)
    # The term 1e-9 takes a sum of weights that equals the target up to rounding errors. The minimum
    # takes the largest value where the target is beyond all weights.
    rank = min(int(np.searchsorted(weight_up_to, target - 1e-9)), len(ascending) - 1)
    return float(values[finite][ascending][rank])


def _spread(X: pd.DataFrame) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]:
    """Return the names of the features that vary, their medians, and their spreads.

    There are two spreads of each feature: one of the values below its median, then one of the
    values above.
    """
    measured = X.loc[:, X.notna().any()]
    low = measured.quantile(_TAIL).to_numpy()
    middle = measured.quantile(0.5).to_numpy()
    high = measured.quantile(1 - _TAIL).to_numpy()
    # The spread of a feature comes from percentiles. But its standard deviation tells whether the
    # feature varies at all.
    standard_deviation = measured.std(ddof=0).to_numpy()
    # The standard deviation of equal values is a rounding error, and may be slightly above 0.
    varies = standard_deviation > 1e-9 * np.maximum(np.abs(middle), 1e-12)
    # If most values of a feature are equal, a percentile may equal the median. The spread to each
    # side is therefore at least a quarter of the feature's standard deviation.
    least_spread = 0.25 * standard_deviation
    below = np.maximum((middle - low) / _NORMAL_TAIL, least_spread)
    above = np.maximum((high - middle) / _NORMAL_TAIL, least_spread)
    names = tuple(measured.columns[varies])
    return names, middle[varies], below[varies], above[varies]


def _rms(z: np.ndarray) -> np.ndarray:
    """Return the root mean square of the finite values of each row; NaN where there is none."""
    finite = np.isfinite(z)
    n_finite = finite.sum(axis=1)
    squares = np.where(finite, z, 0.0) ** 2
    mean_square = squares.sum(axis=1) / np.maximum(n_finite, 1)
    return np.where(n_finite > 0, np.sqrt(mean_square), np.nan)


def _far_side(z: np.ndarray) -> str:
    """Return on which side of the training median the features of a group lie.

    ``z`` are the deviations of the features in standard deviations. Only the half of the features
    that deviates most counts. The result is ``below`` or ``above`` if at least 80 % of them lie
    there, else ``beside``.
    """
    deviating_most = z[np.abs(z) >= np.nanmedian(np.abs(z))]
    if len(deviating_most) == 0:  # no feature of the group was measured
        return "beside"
    share_below = float((deviating_most < 0).mean())
    if share_below >= 0.8:
        return "below"
    if share_below <= 0.2:
        return "above"
    return "beside"
