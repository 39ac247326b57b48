"""Learners, consensus and validation work in Python without what Windows lacks."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
import sys

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("fork", "getuid", "geteuid", "mkfifo"):
    delattr(os, name)
import numpy as np

import cad

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
latent = 1 / (1 + np.exp(-2 * X[:, :1]))
scores = 1 + np.round(4 * np.clip(latent + rng.normal(0, 0.1, (60, 3)), 0, 1))
belief = cad.consensus(scores, "likert5")
result = cad.validate(
    cad.learners.ProbabilisticSVC(), X, belief.p, np.arange(60) // 3, eta=belief.eta
)
print(len(result.probability))
"""


def test_learners_and_validation_need_nothing_that_windows_lacks():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "60"
