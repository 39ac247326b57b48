"""Numba kernels: each compiled for one signature, and all of them by ``warm``.

In a process of its own, because other tests call kernels with arrays of any kind.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import warnings

import numpy as np
from numba.core.registry import CPUDispatcher

import cad.learners
from cad.learners import LEARNERS, ProbabilisticSVC
from cad.learning.learners.warm import warm

SEMI = {"SSLROC", "SSRankBoost", "SVMLin"}


def kernels() -> dict[str, CPUDispatcher]:
    found = {}
    for module in pkgutil.walk_packages(cad.learning.learners.__path__, "cad.learning.learners."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, CPUDispatcher) and value.py_func.__module__ == module.name:
                found[f"{module.name}.{name}"] = value
    return found


def signatures() -> dict[str, int]:
    return {name: len(kernel.signatures) for name, kernel in kernels().items()}


def main() -> None:
    warm()
    first = signatures()
    assert len(first) >= 20
    # A helper is compiled into its caller: only a cold cache shows it a signature of its own.
    assert max(first.values()) == 1, first
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    p = np.round(4 / (1 + np.exp(-2 * X[:, 0] + rng.normal(size=60)))) / 4
    odd = np.asfortranarray(X.astype(np.float32))
    odd.flags.writeable = False
    warnings.simplefilter("ignore")
    for name, learner in sorted(LEARNERS.items()):
        hard = (p > 0.5).astype(int)
        y = np.where(np.arange(60) < 40, hard, -1) if name in SEMI else hard
        learner().fit(odd, y).predict(odd)
    for kernel in ("rbf", "linear", "poly"):
        ProbabilisticSVC(kernel=kernel, C=1000).fit(odd, p)
    assert signatures() == first


def test_warm_compiles_every_kernel_and_no_fit_compiles_another() -> None:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    main()
