"""Remove differences between sites from features (harmonisation).

The method is ComBat, as a transformer of scikit-learn that is fitted inside every fold.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cad.base.errors import CadError, install

# Least number of rows from which a site's shift and scale are estimated.
_MIN_ROWS = 3


class CombatHarmoniser(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Remove each site's shift and scale of every feature by ComBat (empirical Bayes).

    Site effects are estimated only from the rows given to ``fit``. ``transform`` applies them to
    any rows, so that test patients take no part in the estimate. No covariate is preserved, because
    no covariate is known of a new patient. If cancer is more frequent at one site than at another,
    the difference that this makes in the features is therefore partly removed, too.

    Parameters
    ----------
    unseen : {"error", "keep"}
        What ``transform`` does with rows from a site that ``fit`` did not see: raise an error, or
        leave the rows as they are. If a validation leaves out a whole site, only ``keep`` is
        honest: nothing of this site may be used to learn its effect.

    Attributes
    ----------
    sites_ : list of str
        Sites seen by ``fit``, sorted.
    mean_, spread_ : ndarray, shape (n_features,)
        Mean of each feature over the rows of all sites, and its pooled standard deviation within
        sites.
    shift_, scale_ : ndarray, shape (n_sites, n_features)
        Shift and scale of each feature at each site, in units of ``spread_``. They are 0 and 1 for
        a feature that is constant at some site, and if there is only one site.

    References
    ----------
    Johnson et al., Biostatistics 8 (2007) 118; Fortin et al., NeuroImage 167 (2018) 104
    (neuroCombat, extra ``harmonisation``).
    """

    def __init__(self, unseen: Literal["error", "keep"] = "error") -> None:
        self.unseen = unseen

    def fit(self, X: Any, y: Any = None, site: Any = None) -> CombatHarmoniser:
        """Estimate the effect of each site on each feature, and return the harmoniser itself.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Finite values; missing values must have been imputed before.
        y : ignored
        site : array-like of str, shape (n_rows,)
            Site of each row.

        Raises
        ------
        CadError
            Without sites, for a site with fewer than 3 rows, or where neuroCombat (the extra
            ``harmonisation``) is not installed.
        """
        X = validate_data(self, X, dtype=float)
        site_of_rows = _site_of_rows(site, len(X))
        self.sites_ = sorted(set(site_of_rows.tolist()))
        n_sites = len(self.sites_)
        n_features = X.shape[1]
        self.mean_ = X.mean(axis=0)
        self.spread_ = np.ones(n_features)
        self.shift_ = np.zeros((n_sites, n_features))
        self.scale_ = np.ones((n_sites, n_features))
        # One site has no difference to another. It keeps the shift 0 and the scale 1.
        if n_sites == 1:
            return self
        for name in self.sites_:
            n_rows = int((site_of_rows == name).sum())
            if n_rows < _MIN_ROWS:
                raise CadError(
                    f"site {name!r} has {n_rows} regions to learn from; ComBat needs at least "
                    f"{_MIN_ROWS} a site",
                    hint="merge sites in participants.tsv or set harmonisation: none",
                )
        # ComBat divides a feature by its variance at each site. A feature is therefore harmonised
        # only if it varies at every site.
        ranges = np.array([np.ptp(X[site_of_rows == name], axis=0) for name in self.sites_])
        varies = np.asarray((ranges > 0).all(axis=0))
        if varies.any():
            self._estimate(X, site_of_rows, varies)
        return self

    def transform(self, X: Any, site: Any = None) -> np.ndarray:
        """Return a copy of the rows without their site's effect.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Features of the rows, finite values.
        site : array-like of str, shape (n_rows,)
            Site of each row.

        Returns
        -------
        ndarray, shape (n_rows, n_features)
            The harmonised features in their own units. Rows of a site that ``fit`` did not see stay
            as they are if ``unseen`` is ``keep``.

        Raises
        ------
        CadError
            Without sites, or for a site that ``fit`` did not see, unless ``unseen`` is ``keep``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=float, reset=False)
        site_of_rows = _site_of_rows(site, len(X))
        out: np.ndarray = X.copy()
        for name in sorted(set(site_of_rows.tolist())):
            rows = site_of_rows == name
            if name not in self.sites_:
                if self.unseen == "keep":  # rows of this site stay as they are
                    continue
                raise CadError(
                    f"site {name!r} was not among the training sites {self.sites_}",
                    hint="set unseen='keep' to leave its features as they are",
                )
            number = self.sites_.index(name)
            standardised = (X[rows] - self.mean_) / self.spread_
            without_site = (standardised - self.shift_[number]) / self.scale_[number]
            out[rows] = without_site * self.spread_ + self.mean_
        return out

    def _estimate(self, X: np.ndarray, site_of_rows: np.ndarray, varies: np.ndarray) -> None:
        """Set mean, spread, shift and scale of the features that vary, by neuroCombat.

        ``varies`` is boolean, shape (n_features,).
        """
        try:
            from neuroCombat import neuroCombat
        except ImportError as error:
            raise CadError(
                "site harmonisation needs the package neuroCombat, which is not installed",
                hint=f"{install('harmonisation')}; or set harmonisation: none",
            ) from error
        with contextlib.redirect_stdout(io.StringIO()):  # neuroCombat prints each of its steps
            estimates = neuroCombat(
                dat=X[:, varies].T,  # neuroCombat takes a row for each feature
                covars=pd.DataFrame({"site": site_of_rows.astype(object)}),
                batch_col="site",
                # The empirical Bayes estimate takes its prior from the site's effects on all
                # features. One feature alone gives no prior, so that the plain estimate is used.
                eb=int(varies.sum()) > 1,
            )["estimates"]
        # "stand.mean" has the same column for every row of ``X``, because there is no covariate.
        self.mean_[varies] = estimates["stand.mean"][:, 0]
        self.spread_[varies] = np.sqrt(estimates["var.pooled"][:, 0])
        self.shift_[:, varies] = estimates["gamma.star"]
        self.scale_[:, varies] = np.sqrt(estimates["delta.star"])


def _site_of_rows(site: Any, n_rows: int) -> np.ndarray:
    """Return the site of each row as text, shape (n_rows,); refuse missing sites."""
    if site is None:
        raise CadError(
            "site harmonisation needs the site of every region",
            hint="fill the column 'site' of participants.tsv, or set harmonisation: none",
        )
    site_of_rows = np.asarray(site).astype(str)
    if site_of_rows.shape != (n_rows,):
        raise CadError(f"{n_rows} rows but sites of shape {site_of_rows.shape}")
    return site_of_rows
