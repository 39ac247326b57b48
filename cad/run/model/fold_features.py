"""Fit, inside every fold, those steps before the learner that depend on several patients.

There are three such steps: Nyul's scale of T2 (a common intensity scale by histograms), the choice
of stable features, and site harmonisation. All of them depend on the patients in the training set.
The validation gets a :class:`FoldFeatures` as a callable. It takes the numbers of the training rows
and returns the features of all rows after steps that are fitted to these patients alone. For the
final model the fitted steps (:class:`Preparation`) are stored with the model, and are applied to
new patients.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import JsonObject, write_atomic
from cad.base.reading import read_array, reading
from cad.base.settings import PipelineSettings
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.study_file import open_study
from cad.mri.columns import columns_of
from cad.mri.features.harmonise import CombatHarmoniser
from cad.mri.features.provenance import check_columns
from cad.mri.features.robustness import MIN_LOWER_BOUND, stable_features
from cad.mri.features.unscaled import UnscaledT2
from cad.mri.imaging.standardise import NyulScale

NYUL_NOTE = (
    "T2 standardised by Nyul: features.parquet holds the fit on all patients; every fold was "
    "measured again on the scale of its training patients"
)


@dataclass(frozen=True, eq=False)
class Preparation:
    """Hold the steps on features that are fitted on one set of training patients.

    Parameters
    ----------
    scale : NyulScale or None
        Nyul's scale of T2; None where the pipeline does not use it.
    unstable : tuple of str
        Features whose values change too much when the regions' outlines are varied a little. The
        learner does not use them.
    harmoniser : CombatHarmoniser or None
        The harmoniser that removes site effects; None where the pipeline does not harmonise.
    medians : ndarray, shape (n_features,), or None
        Median of each feature over the training rows. While a row is harmonised, medians stand for
        its missing values. Afterwards these values are NaN again.
    """

    scale: NyulScale | None = None
    unstable: tuple[str, ...] = ()
    harmoniser: CombatHarmoniser | None = None
    medians: np.ndarray | None = None

    def adjust(self, X: pd.DataFrame, sites: Sequence[str] | np.ndarray) -> np.ndarray:
        """Return features for the learner, with site effects removed and unstable features emptied.

        ``X`` is not changed. Imputation and scaling are the learner's own steps and come later.

        Parameters
        ----------
        X : DataFrame, shape (n, n_features)
            Features in the order of the training columns; T2 features are measured on Nyul's
            scale of T2, :attr:`scale`, if the pipeline uses one.
        sites : sequence of str, length n
            Site of every row, empty where unknown; used for harmonisation only.

        Returns
        -------
        ndarray, shape (n, n_features)
            Features in the order of ``X``. The column of an unstable feature is NaN: imputation
            makes it constant, and constant features are dropped. Rows of a site without training
            patients are not harmonised.
        """
        values: np.ndarray = X.to_numpy(float, copy=True)
        if self.harmoniser is not None and self.medians is not None:
            missing = np.isnan(values)
            # The harmoniser does not accept NaN. Its result in one column depends on no other
            # column. So any number can stand for NaN while the harmoniser works.
            filled = np.where(missing, self.medians, values)
            values = self.harmoniser.transform(filled, site=np.asarray(sites, str))
            # Missing values become NaN again, because the learner imputes them from its own
            # training rows.
            values[missing] = np.nan
        # The columns of unstable features are emptied and not dropped, so that a bundle has all
        # columns of its pipeline.
        values[:, X.columns.isin(self.unstable)] = np.nan
        return values

    def unseen(self, sites: Sequence[str] | np.ndarray) -> list[str]:
        """Return the given sites that had no patients when harmonisation was fitted, sorted.

        Features of these sites stay unchanged. The list is empty without harmonisation.
        """
        if self.harmoniser is None:
            return []
        return sorted(set(map(str, sites)) - set(self.harmoniser.sites_))

    def as_text(self) -> list[str]:
        """Return a sentence on every step that was fitted, for the model's card."""
        sentences = []
        if self.scale is not None:
            sentences.append("T2 is put on the Nyul scale of the training patients")
        if self.unstable:
            sentences.append(f"{len(self.unstable)} features that redrawing changes are not used")
        if self.harmoniser is not None:
            sentences.append(f"site effects removed by ComBat: {', '.join(self.harmoniser.sites_)}")
        return sentences

    def as_dict(self) -> JsonObject:
        """Return the preparation as JSON for a model's metadata; :meth:`from_dict` reads it."""
        harmonisation: JsonObject | None = None
        if self.harmoniser is not None and self.medians is not None:
            harmonisation = {
                "mean": self.harmoniser.mean_.tolist(),
                "spread": self.harmoniser.spread_.tolist(),
                "shift": self.harmoniser.shift_.tolist(),
                "scale": self.harmoniser.scale_.tolist(),
                "sites": self.harmoniser.sites_,
                "medians": self.medians.tolist(),
            }
        return {
            "nyul_landmarks": None if self.scale is None else self.scale.landmarks.tolist(),
            "unstable": list(self.unstable),
            "combat": harmonisation,
        }

    @classmethod
    def of(cls, metadata: JsonObject) -> Preparation:
        """Return the preparation, the steps on features before the learner, from a model's
        metadata.

        If the metadata hold none, the result is a preparation that changes nothing.
        """
        return cls.from_dict(metadata.get("preparation"))

    @classmethod
    def from_dict(cls, content: JsonObject | None) -> Preparation:
        """Return the preparation that :meth:`as_dict` wrote.

        For None the result is a preparation that changes nothing.
        """
        if content is None:
            return cls()
        landmarks = content["nyul_landmarks"]
        scale = None if landmarks is None else NyulScale(np.array(landmarks))
        without_harmoniser = cls(scale=scale, unstable=tuple(content["unstable"]))
        harmonisation = content["combat"]
        if harmonisation is None:
            return without_harmoniser
        harmoniser = CombatHarmoniser(unseen="keep")
        harmoniser.sites_ = list(harmonisation["sites"])
        for name in ("mean", "spread", "shift", "scale"):
            setattr(harmoniser, f"{name}_", np.array(harmonisation[name], float))
        harmoniser.n_features_in_ = len(harmoniser.mean_)
        medians = np.array(harmonisation["medians"], float)
        return replace(without_harmoniser, harmoniser=harmoniser, medians=medians)


def without_copies(settings: PipelineSettings) -> PipelineSettings:
    """Return a copy of a trained model's settings for use with new patients.

    ``features.robustness.stable_only`` is False in the copy, so that the outlines of new regions
    are not varied. Which features stay nearly the same under other outlines was decided on the
    training patients.
    """
    robustness = settings.features.robustness.model_copy(update={"stable_only": False})
    features = settings.features.model_copy(update={"robustness": robustness})
    return settings.model_copy(update={"features": features})


class FoldFeatures:
    """Fit the steps on features to some rows of a table, and apply them to all its rows.

    The steps are Nyul's scale of T2, the choice of stable features (nearly the same when outlines
    are varied a little) and site harmonisation. The settings say which of them are used. A call of
    the object with the numbers of the training rows returns the features of all rows, shape (n,
    n_features).

    Parameters
    ----------
    keys : DataFrame
        Columns ``participant_id, study_id, roi_id``, with one row per region, study after study.
    X : DataFrame, shape (n, n_features)
        Features as measured. T2 features may be NaN if Nyul's scale is to be fitted.
    settings : PipelineSettings
        Settings that say which steps are fitted.
    results : sequence of Path
        Study files of the run folder, in the order of the rows. The table may end with rows from
        the training of an earlier model, which have no study file.
    sites : sequence of str, length n
        Site of every row, empty where unknown.
    folder : RunFolder
        Folder in which T2 features are cached: one file for each scale that was used.

    Raises
    ------
    CadError
        When a step needs images of rows that have no study file; when no region could be outlined
        differently to find stable features; when a column of ``X`` says how a region was measured.
    """

    def __init__(
        self,
        keys: pd.DataFrame,
        X: pd.DataFrame,
        settings: PipelineSettings,
        results: Sequence[Path],
        sites: Sequence[str] | np.ndarray,
        folder: RunFolder,
    ) -> None:
        check_columns(X.columns)
        self.keys = keys
        self.X = X
        self.settings = settings
        self.results = list(results)
        self.sites = np.asarray(sites, str)
        self.folder = folder
        self._nyul = (
            settings.images.t2_standardisation == "nyul" and "t2w" in settings.features.modalities
        )
        self._stable = settings.features.robustness.stable_only
        self._combat = settings.learner.harmonisation == "combat"
        # These three are read from the study files, where a step needs them.
        self._landmarks: dict[str, np.ndarray] = {}
        self._digest = ""
        self._copies = pd.DataFrame()
        if self._nyul or self._stable:
            self._read_studies()

    def with_rows(self, keys: pd.DataFrame, X: pd.DataFrame, sites: np.ndarray) -> FoldFeatures:
        """Return a copy of this object for a longer table, with the same settings and study files.

        Parameters
        ----------
        keys, X, sites
            Keys, features and sites of the longer table: first the rows of this table, then those
            of an earlier model.
        """
        return FoldFeatures(keys, X, self.settings, self.results, sites, self.folder)

    @property
    def notes(self) -> list[str]:
        """Return the sentences on fitted steps that a run must show."""
        remarks = [NYUL_NOTE] if self._nyul else []
        if self._stable:
            stable = set(stable_features(self._copies)) & set(self.X.columns)
            remarks.append(
                f"learned from stable features only, {len(stable)} of {self.X.shape[1]} over all "
                "patients; every fold judged them on its training patients"
            )
        stated_sites = sorted(set(self.sites) - {""})
        if self._combat and len(stated_sites) == 1:
            remarks.append(
                f"harmonisation: nothing to do, all patients are of site {stated_sites[0]}"
            )
        return remarks

    def fit(self, rows: np.ndarray) -> Preparation:
        """Return the steps on features, fitted to the patients of some rows.

        Parameters
        ----------
        rows : ndarray of int
            Numbers of the training rows.

        Raises
        ------
        CadError
            When no feature is stable, or no training patient has a T2 image. Where sites are
            harmonised, also for a patient without a site, and for a site with too few regions.
        """
        scale = None
        unstable = ()
        if self._nyul:
            # Nyul's scale of T2 is fitted first. Site effects are then estimated on features that
            # are measured on this scale.
            scale = self._fitted_scale(rows)
        if self._stable:
            # All copies of the training patients' regions with redrawn outlines are used. A region
            # without a label also shows how features change with the outline.
            patients = sorted(set(self.keys["participant_id"].iloc[rows]))
            stable = set(stable_features(self._copies, patients, MIN_LOWER_BOUND))
            unstable = tuple(name for name in self.X.columns if name not in stable)
        preparation = Preparation(scale=scale, unstable=unstable)
        return self._with_harmoniser(preparation, rows) if self._combat else preparation

    def measured(self, scale: NyulScale | None) -> pd.DataFrame:
        """Return the feature table with T2 features measured on ``scale``.

        The table is unchanged where ``scale`` is None.
        """
        if scale is None:
            return self.X
        columns = columns_of(self.settings.features)
        t2_features = []
        for name in self.X.columns:
            if name in columns and columns[name].image == "t2w":
                t2_features.append(name)
        features = self.X.copy()
        features[t2_features] = self._t2(scale, t2_features)
        return features

    def complete(self) -> pd.DataFrame:
        """Return the feature table to store.

        Where Nyul's scale is used, the T2 features are measured on a scale that is fitted to all
        patients.
        """
        if not self._nyul:
            return self.X
        all_rows = np.arange(len(self.keys))
        return self.measured(self._fitted_scale(all_rows))

    def apply(self, preparation: Preparation) -> np.ndarray:
        """Return features of all rows, shape (n, n_features), after the steps of a preparation."""
        return preparation.adjust(self.measured(preparation.scale), self.sites)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return features of all rows, shape (n, n_features), with the steps fitted to ``rows``.

        ``rows`` has the numbers of the training rows. A validation calls this for every fold.
        """
        return self.apply(self.fit(rows))

    def _with_harmoniser(self, preparation: Preparation, rows: np.ndarray) -> Preparation:
        """Return a preparation with a harmoniser of sites that is fitted to the training rows."""
        patients = self.keys["participant_id"].iloc[rows]
        patients_without_site = sorted(set(patients[self.sites[rows] == ""]))
        if patients_without_site:
            others = ""
            if len(patients_without_site) > 1:
                others = f" and {len(patients_without_site) - 1} others"
            raise CadError(
                "site harmonisation needs a site for every patient; none for "
                f"{patients_without_site[0]}{others}",
                hint="fill the column 'site' of participants.tsv, or set harmonisation: none",
            )
        values = self.measured(preparation.scale).to_numpy(float)[rows]
        # The harmoniser does not accept NaN. A missing value gets the median of its feature, or 0
        # where no training row has a value. ``Preparation.adjust`` turns these values into NaN
        # again.
        has_value = np.isfinite(values).any(axis=0)
        medians = np.zeros(values.shape[1])
        medians[has_value] = np.nanmedian(values[:, has_value], axis=0)
        filled = np.where(np.isnan(values), medians, values)
        harmoniser = CombatHarmoniser(unseen="keep").fit(filled, site=self.sites[rows])
        return replace(preparation, harmoniser=harmoniser, medians=medians)

    def _fitted_scale(self, rows: np.ndarray) -> NyulScale:
        """Return Nyul's scale of T2, fitted to the studies of the training rows."""
        # Each study counts once in the fit of the scale, however many regions it has.
        studies = self.keys["study_id"].iloc[rows].unique()
        landmarks = [self._landmarks[study] for study in studies if study in self._landmarks]
        if not landmarks:
            raise CadError(
                "no training patient has a T2 image to fit Nyul's scale on",
                hint="set t2_standardisation: zscore, or leave t2w out of features.modalities",
            )
        return NyulScale.fit(np.array(landmarks))

    def _read_studies(self) -> None:
        """Read from every study the landmarks for Nyul's scale and the redrawn regions' features.

        The landmarks are percentiles of the T2 intensities.
        """
        digest = hashlib.sha256()
        copies_of_studies = []
        n_rows = 0
        for path in self.results:
            with open_study(path) as archive:
                # The key of a study is a hash of its images, regions and settings. So a changed
                # study gives the cache file another name.
                digest.update(str(archive["key"]).encode())
                n_rows += len(archive["roi_ids"])
                unscaled = UnscaledT2.from_arrays(archive)
                if unscaled is not None:
                    self._landmarks[path.stem] = unscaled.landmarks
                if "copies" in archive:
                    copies = pd.DataFrame(archive["copies"], columns=archive["copy_names"])
                    for name in ("roi_id", "repeat"):
                        copies.insert(0, name, archive[f"copy_{name}"])
                    copies.insert(0, "participant_id", str(archive["participant_id"]))
                    copies_of_studies.append(copies)
        if n_rows != len(self.keys):
            raise CadError(
                f"{len(self.keys) - n_rows} rows of the training table come from an earlier "
                "model, which holds no images to standardise or redraw",
                hint="train on both cohorts together, or without nyul and stable_only",
            )
        self._digest = digest.hexdigest()
        if copies_of_studies:
            self._copies = pd.concat(copies_of_studies, ignore_index=True)
        elif self._stable:
            raise CadError("no region could be redrawn: nothing is known about stability")

    @door("own", "arrays")
    def _t2(self, scale: NyulScale, names: list[str]) -> np.ndarray:
        """Return the T2 features of all rows on a scale; they are cached by studies and scale."""
        # The columns are cached in a file, because the same training patients, and with them the
        # same scale, come again in permutations and in inner folds.
        content = f"{self._digest} {scale.key} {names}"
        cache_key = hashlib.sha256(content.encode()).hexdigest()[:32]
        path = self.folder.fold_features(cache_key)
        shape = (len(self.keys), len(names))
        # A cache file that is missing or damaged is made again.
        with suppress(CadError, FileNotFoundError), reading(path, "not a readable array"):
            stored: np.ndarray = read_array(path)
            if stored.shape == shape and stored.dtype == float:
                return stored
        values_of_studies = []
        for result in self.results:
            with open_study(result) as archive:
                unscaled = UnscaledT2.from_arrays(archive)
                values_of_study = np.full((len(archive["roi_ids"]), len(names)), np.nan)
            if unscaled is not None:  # the study has a T2 image
                columns = unscaled.columns(scale, self.settings.features)
                for number, name in enumerate(names):
                    values_of_study[:, number] = columns.get(name, np.nan)
            values_of_studies.append(values_of_study)
        values = np.concatenate(values_of_studies)
        stream = io.BytesIO()
        np.save(stream, values)
        write_atomic(path, stream.getvalue())
        return values
