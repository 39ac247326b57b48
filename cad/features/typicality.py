"""Is this region like those a model was trained on? Limits by feature, family and modality.

An average over all features drowns one image in a wrong unit among hundreds of columns. Here every
feature has its own spread, asymmetric as the feature is; a family (ADC gradient, Tofts), the level
of an image (its means and percentiles) and a modality have a score each, the root mean square of
their features' deviations; and a region is as unusual as its most unusual group. How unusual is too
much is learned on training regions that the limits had not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cad.errors import CadError
from cad.files import JsonObject
from cad.imaging.modality import MODALITIES

# Share of held-out training regions that may be flagged; aimed below the 5 % that are promised,
# because regions of one patient go together and the quantile is itself uncertain.
FLAGGED = 0.03
_FOLDS = 10
_TAIL = 0.10
_NORMAL_TAIL = 1.2816  # standard deviations from the median to the 10th or 90th percentile
_CLIP = 12.0
_TITLES = {entry.name: entry.short for entry in MODALITIES}
_FAMILY_WORDS = {
    "intensity": "intensity",
    "histogram": "histogram",
    "sobel": "gradient",
    "kirsch": "gradient",
    "haralick": "texture",
    "semi": "enhancement",
    "tofts": "Tofts",
    "extended": "extended Tofts",
    "brix": "Brix",
    "t1": "T1",
    "patlak": "Patlak",
}


# Statistics that move with an image's scale and offset as a whole.
_LEVEL = ("mean", "median", "minimum", "p10", "p25", "p75", "p90", "maximum", "rms")


@dataclass(frozen=True)
class Deviation:
    """Say how one group of features departs from training.

    Parameters
    ----------
    group : str
        ``T2``, ``T2 intensity``, ...
    size : float
        Root mean square of its features' deviations, in standard deviations.
    direction : str
        ``below``, ``above``, or ``beside`` where its features go both ways.
    """

    group: str
    size: float
    direction: str

    def __str__(self) -> str:
        return f"{self.group}: {self.size:.1f} SD {self.direction} the training regions"


@dataclass(frozen=True)
class Judgement:
    """Say what is unusual about one region.

    Parameters
    ----------
    score : float
        Above 1 the region is flagged.
    deviations : tuple of Deviation
        Groups beyond their limit, the worst first; empty for a region that is not flagged.
    features : tuple of (str, float)
        The three features that are furthest out, in signed standard deviations.
    """

    score: float
    deviations: tuple[Deviation, ...]
    features: tuple[tuple[str, float], ...]

    @property
    def flagged(self) -> bool:
        """Return whether the region is unlike those of the training."""
        return self.score > 1.0


@dataclass(frozen=True, eq=False)
class Typicality:
    """Hold the limits of the training regions.

    Parameters
    ----------
    features : tuple of str
        Those that vary.
    middle, low, high : ndarray, shape (n_features,)
        Median, and the standard deviation below and above it.
    limits : dict of str to float
        By group: score above which a region is flagged.
    """

    features: tuple[str, ...]
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    limits: dict[str, float]

    @classmethod
    def fit(
        cls, X: pd.DataFrame, patients: Sequence[str] | np.ndarray, flagged: float = FLAGGED
    ) -> Typicality:
        """Learn limits so that few regions of patients who were held out are flagged.

        Parameters
        ----------
        X : DataFrame, shape (n_regions, n_features)
            Training rows; NaN where a feature is missing.
        patients : sequence of str, length n_regions
            Whose regions; all regions of a patient are held out together.
        flagged : float
            Share of held-out training regions that is flagged.

        Raises
        ------
        CadError
            For fewer than 3 patients: nothing can be held out.
        """
        who = np.asarray(patients, str)
        names = np.unique(who)
        if len(names) < 3:
            raise CadError(f"limits need regions of at least 3 patients, found {len(names)}")
        whole = cls(*_spread(X), {})
        fold_of = dict(zip(names, np.arange(len(names)) % min(_FOLDS, len(names)), strict=True))
        folds = np.array([fold_of[name] for name in who])
        parts = []
        for fold in np.unique(folds):
            inner = cls(*_spread(X[folds != fold]), {})
            parts.append(pd.DataFrame(inner.scores(X[folds == fold])))
        held = pd.concat(parts, ignore_index=True)
        # Groups differ in how heavy their tails are: each is measured by its own upper end, and
        # one factor on all of them makes the promised share.
        ends = held.quantile(1 - flagged).fillna(np.inf)
        worst = np.sort((held / ends).max(axis=1).fillna(0.0).to_numpy())
        # Conformal: the rank that a new exchangeable region exceeds with the probability wanted.
        rank = min(int(np.ceil((len(worst) + 1) * (1 - flagged))), len(worst))
        factor = float(worst[rank - 1]) * (1 + 1e-9)
        limits = {g: float(factor * ends.get(g, np.inf)) for g in _groups(whole.features)}
        limits = {g: v for g, v in limits.items() if np.isfinite(v) and v > 0}
        return cls(whole.features, whole.middle, whole.low, whole.high, limits)

    def deviations(self, X: pd.DataFrame) -> np.ndarray:
        """Return signed deviations (SD, clipped), shape (n_regions, n_features)."""
        gap = X.reindex(columns=list(self.features)).to_numpy(float) - self.middle
        clipped: np.ndarray = np.clip(
            np.where(gap < 0, gap / self.low, gap / self.high), -_CLIP, _CLIP
        )
        return clipped

    def scores(self, X: pd.DataFrame) -> dict[str, np.ndarray]:
        """Return each group's score of every region; NaN where none of its features is known."""
        z = self.deviations(X)
        return {group: _rms(z[:, at]) for group, at in _groups(self.features).items()}

    def judge(self, X: pd.DataFrame) -> list[Judgement]:
        """Judge every region.

        Parameters
        ----------
        X : DataFrame, shape (n_regions, n_features)
            Columns of the training; what is missing is left out.
        """
        z, scores, groups = self.deviations(X), self.scores(X), _groups(self.features)
        found = []
        for row in range(len(X)):
            ratio = {
                g: scores[g][row] / limit
                for g, limit in self.limits.items()
                if np.isfinite(scores[g][row])
            }
            out = sorted((g for g, r in ratio.items() if r > 1), key=lambda g: -ratio[g])
            deviations = tuple(
                Deviation(g, float(scores[g][row]), _direction(z[row, groups[g]])) for g in out
            )
            order = np.argsort(-np.nan_to_num(np.abs(z[row])))[:3]
            features = tuple((self.features[i], float(z[row, i])) for i in order)
            found.append(Judgement(max(ratio.values(), default=0.0), deviations, features))
        return found

    def as_dict(self) -> JsonObject:
        """Return content for a model's metadata (JSON)."""
        return {
            "features": list(self.features),
            "middle": self.middle.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "limits": self.limits,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Typicality:
        """Read what :meth:`as_dict` gave."""
        middle, low, high = (np.array(content[k], float) for k in ("middle", "low", "high"))
        return cls(tuple(content["features"]), middle, low, high, dict(content["limits"]))


def _spread(X: pd.DataFrame) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]:
    """Return the features that vary, their medians, and the spread to both sides."""
    known = X.loc[:, X.notna().any()]
    low, middle, high = (known.quantile(q).to_numpy() for q in (_TAIL, 0.5, 1 - _TAIL))
    spread = known.std(ddof=0).to_numpy()
    varies = spread > 1e-9 * np.maximum(np.abs(middle), 1e-12)
    # A feature that is mostly one value has no percentile on that side: all its spread stands in.
    floor = 0.25 * spread
    below = np.maximum((middle - low) / _NORMAL_TAIL, floor)
    above = np.maximum((high - middle) / _NORMAL_TAIL, floor)
    names = tuple(name for name, v in zip(known.columns, varies, strict=True) if v)
    return names, middle[varies], below[varies], above[varies]


def _groups(features: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the features (positions) of every modality and of every family in it."""
    found: dict[str, list[int]] = {}
    for at, name in enumerate(features):
        modality, _, rest = name.partition("_")
        title = _TITLES.get(modality, modality)
        word = _FAMILY_WORDS.get(rest.split("_")[0])
        found.setdefault(title, []).append(at)
        if rest.startswith("intensity_") and rest.removeprefix("intensity_") in _LEVEL:
            found.setdefault(f"{title} level", []).append(at)
        if word is not None:
            found.setdefault(f"{title} {word}" if title != word else word, []).append(at)
    return {group: np.array(at) for group, at in found.items()}


def _rms(z: np.ndarray) -> np.ndarray:
    known = np.isfinite(z)
    count = known.sum(axis=1)
    total = np.where(known, z, 0.0) ** 2
    return np.where(count > 0, np.sqrt(total.sum(axis=1) / np.maximum(count, 1)), np.nan)


def _direction(z: np.ndarray) -> str:
    """Return where most of what is far out lies."""
    far = z[np.abs(z) >= np.nanmedian(np.abs(z))]
    if not len(far) or 0.2 < (share := float((far < 0).mean())) < 0.8:
        return "beside"
    return "below" if share >= 0.8 else "above"
