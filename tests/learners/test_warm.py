"""Numba kernels: each compiled for one signature, and all of them by ``warm``."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
from numba.core.registry import CPUDispatcher

import cad.learners
from cad.learners import LEARNERS, ProbabilisticSVC
from cad.learners.warm import warm

SEMI = {"SSLROC", "SSRankBoost", "SVMLin"}


def kernels() -> dict[str, CPUDispatcher]:
    found = {}
    for module in pkgutil.iter_modules(cad.learners.__path__, "cad.learners."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, CPUDispatcher) and value.py_func.__module__ == module.name:
                found[f"{module.name}.{name}"] = value
    return found


@pytest.mark.filterwarnings("ignore::cad.learners.base.LearnerWarning")
def test_warm_compiles_every_kernel_and_no_fit_compiles_another() -> None:
    warm()
    assert len(kernels()) >= 20
    # A helper is compiled into its caller: only a cold cache shows it a signature of its own.
    called = {name: len(k.signatures) for name, k in kernels().items()}
    assert max(called.values()) == 1, called
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    p = np.round(4 / (1 + np.exp(-2 * X[:, 0] + rng.normal(size=60)))) / 4
    odd = np.asfortranarray(X.astype(np.float32))
    odd.flags.writeable = False
    for name, learner in sorted(LEARNERS.items()):
        hard = (p > 0.5).astype(int)
        y = np.where(np.arange(60) < 40, hard, -1) if name in SEMI else hard
        learner().fit(odd, y).predict(odd)
    for kernel in ("rbf", "linear", "poly"):
        ProbabilisticSVC(kernel=kernel, C=1000).fit(odd, p)
    after = {name: len(k.signatures) for name, k in kernels().items()}
    grown = {name for name in after if after[name] > max(called[name], 1)}
    assert not grown
    entered = {name for name in after if called[name] == 0 and after[name] > 0}
    assert not entered, f"warm() does not reach {entered}"
