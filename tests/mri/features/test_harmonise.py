"""ComBat inside folds: what it removes, what it leaves, what it refuses."""

from __future__ import annotations

import builtins

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from cad.base.errors import CadError
from cad.mri.features.harmonise import CombatHarmoniser

pytest.importorskip("neuroCombat", reason="extra 'harmonisation'")


def two_sites(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)) * np.arange(1, 7)
    site = np.where(np.arange(n) % 2 == 0, "A", "B")
    X[site == "B"] = X[site == "B"] * 2 + 5
    return X, site


def test_site_shift_and_scale_are_removed() -> None:
    X, site = two_sites()
    out = CombatHarmoniser().fit(X, site=site).transform(X, site=site)
    a, b = out[site == "A"], out[site == "B"]
    assert np.abs(a.mean(axis=0) - b.mean(axis=0)).max() < 0.1 * out.std()
    np.testing.assert_allclose(a.std(axis=0), b.std(axis=0), rtol=0.1)


def test_training_rows_equal_the_library_itself() -> None:
    from neuroCombat import neuroCombat

    X, site = two_sites()
    theirs = neuroCombat(dat=X.T, covars=pd.DataFrame({"site": site}), batch_col="site")["data"].T
    ours = CombatHarmoniser().fit(X, site=site).transform(X, site=site)
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_a_row_is_transformed_alone_as_among_others() -> None:
    X, site = two_sites()
    model = CombatHarmoniser().fit(X[:100], site=site[:100])
    together = model.transform(X[100:], site=site[100:])
    alone = model.transform(X[150:151], site=site[150:151])
    np.testing.assert_array_equal(together[50:51], alone)


def test_one_site_and_constant_features_stay() -> None:
    X, site = two_sites()
    same = CombatHarmoniser().fit(X, site=["A"] * len(X)).transform(X, site=["A"] * len(X))
    np.testing.assert_allclose(same, X, atol=1e-12)
    X[:, 2] = 7.0
    out = CombatHarmoniser().fit(X, site=site).transform(X, site=site)
    np.testing.assert_allclose(out[:, 2], 7.0)
    assert np.isfinite(out).all()


def test_unseen_site_missing_site_and_small_site() -> None:
    X, site = two_sites(20)
    model = CombatHarmoniser().fit(X, site=site)
    with pytest.raises(CadError, match="site 'C' was not among"):
        model.transform(X[:2], site=["C", "A"])
    kept = CombatHarmoniser(unseen="keep").fit(X, site=site).transform(X[:1], site=["C"])
    np.testing.assert_array_equal(kept, X[:1])
    with pytest.raises(CadError, match="needs the site of every region"):
        CombatHarmoniser().fit(X)
    with pytest.raises(CadError, match="site 'C' has 1 regions"):
        CombatHarmoniser().fit(X, site=["C", *site[1:]])


def test_attributes_are_plain_arrays_and_clone_works() -> None:
    X, site = two_sites(20)
    model = clone(CombatHarmoniser(unseen="keep")).fit(X, site=site)
    assert model.sites_ == ["A", "B"]
    kinds = {type(v) for k, v in vars(model).items() if k.endswith("_")}
    assert kinds <= {list, np.ndarray, int}


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: object, **kwargs: object) -> object:
        if name == "neuroCombat":
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    X, site = two_sites(20)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(CadError, match=r"cad\[harmonisation\]"):
        CombatHarmoniser().fit(X, site=site)
