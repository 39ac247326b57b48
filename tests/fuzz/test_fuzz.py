"""Mutated input of every kind: accepted, or refused with the project's own error.

Never another traceback, a case that takes longer than 10 s of processor time, or more than 2 GB of
memory (the kernel refuses more). The unmarked test draws 25 cases of each kind; ``-m fuzz`` draws
300. Damage with a meaning is in ``tests/fuzz/test_structured.py``.
Mutated DICOM series and annotation objects are in ``tests/mri/imaging/test_imaging_fuzz.py`` too.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fuzzing import fault
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cad.base.settings import DecisionSettings, PipelineSettings, read_settings
from cad.dicom.into.sources import unpack
from cad.dicom.into.tables import read_scores
from cad.evidence.phantom import simulate
from cad.folders.cohort import read_cohort
from cad.learners import ProbabilisticSVC
from cad.mri.imaging.study import Roi
from cad.mri.imaging.study_files import read_study
from cad.run.execution.task import study_files
from cad.run.model.bundle import FILES, HASHES, save_bundle, verify_bundle

MEMORY = 2 * 10**9
FEW, MANY = 25, 300

TOKENS = (
    b"nan",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b"0",
    b"",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'"',
    b"'",
    b"\t",
    b"\n",
    b"\r",
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"n/a",
    b"../../x",
    b"!!python/object/apply:os.system [ls]",
    b"&a [*a]",
    b"*b",
    b"<<: *c",
    b"- " * 2000,
    b"[" * 5000,
    b'{"a":' * 3000,
    b"sub-0001",
    b"1_000",
    b"\xe2\x80\xae",
)
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(("set", "token", "cut", "repeat", "end")),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
        st.sampled_from(TOKENS),
        st.integers(1, 64),
    ),
    min_size=1,
    max_size=4,
)


def mutated(content: bytes, mutations: list) -> bytes:
    """Bytes set, tokens put in, parts cut out, repeated, the end cut off."""
    for kind, where, byte, token, length in mutations:
        at = int(where * len(content))
        if kind == "set":
            content = content[:at] + bytes([byte]) + content[at + 1 :]
        elif kind == "token":
            content = content[:at] + token + content[at + length % 8 :]
        elif kind == "cut":
            content = content[:at] + content[at + length :]
        elif kind == "repeat":
            content = content[:at] + content[at : at + length] * 3 + content[at + length :]
        else:
            content = content[:at]
    return content


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Two gigabytes more than now, or MemoryError, which no case may raise."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        now = next(int(x.split()[1]) * 1024 for x in status.splitlines() if x.startswith("VmData"))
        resource.setrlimit(resource.RLIMIT_DATA, (now + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


def survive(read: Callable[[], object]) -> None:
    """Read, or be refused."""
    assert fault(read) == ""


class Target:
    """Files to mutate and what reads them."""

    def __init__(
        self,
        files: list[Path],
        read: Callable[[], object],
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self.files, self.read, self.before = files, read, before
        self.contents = [path.read_bytes() for path in files]

    def case(self, which: int, mutations: list) -> None:
        """One file mutated, read, and put back."""
        path, content = self.files[which], self.contents[which]
        path.write_bytes(mutated(content, mutations))
        try:
            self.before()
            survive(self.read)
        finally:
            path.write_bytes(content)


def cohort_tables(root: Path) -> Target:
    names = ("participants.tsv", "readers.tsv", "rois.tsv", "scores.tsv")
    return Target([root / name for name in names], lambda: read_cohort(root).studies())


def cohort_description(root: Path) -> Target:
    return Target([root / "dataset_description.json"], lambda: read_cohort(root))


def study(root: Path, suffix: str) -> Target:
    folder = root / "sub-0001"
    rois = [Roi("1", 1), Roi("2", 2)]
    files = [folder / name for name, _ in study_files(folder) if name.endswith(suffix)]
    return Target(files, lambda: read_study(folder, "sub-0001", "sub-0001", rois))


def pipeline_yaml(root: Path) -> Target:
    path = root / "pipeline.yaml"
    path.write_text(
        "name: fuzz\nfeatures: {modalities: [t2w, adc], texture: {bins: 16}}\n"
        "labels: {eta: 0.1, pirads_probability: {1: 0.1, 5: 0.9}}\n"
        "learner: {name: ProbabilisticSVC, params: {C: 1.0}, grid: {C: [1, 2]}}\n"
    )
    return Target([path], lambda: read_settings(PipelineSettings, path))


def decision_yaml(root: Path) -> Target:
    path = root / "decision.yaml"
    path.write_text("false_positive: 1\nfalse_negative: 4\nrefer_negative: 0.4\n")
    return Target([path], lambda: read_settings(DecisionSettings, path).thresholds)


def scores_beside_dicom(root: Path) -> Target:
    path = root / "beside.tsv"
    path.write_text("patient_id,roi_id,reader_id,scale,score\nP1,1,r1,likert,3\n")
    return Target([path], lambda: read_scores(path, "P1", "sub-P1"))


def bundle(root: Path, rehash: bool) -> Target:
    folder = root / "model"
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    y = (X[:, 0] > 0).astype(float)
    model = Pipeline([("scale", StandardScaler()), ("learner", ProbabilisticSVC())]).fit(X, y)
    training = pd.DataFrame(X, columns=list("abc")).assign(p=y)
    save_bundle(folder, model, {"features": list("abc")}, "card", X[:4], training)

    def sign() -> None:
        """An attacker writes the hashes of what he changed."""
        if rehash:
            hashes = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in FILES}
            (folder / HASHES).write_text(json.dumps(hashes))

    names = FILES[:4] if rehash else (*FILES, HASHES)
    return Target([folder / name for name in names], lambda: verify_bundle(folder), sign)


def archive(root: Path) -> Target:
    path = root / "studies.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for i in range(3):
            out.writestr(f"study/series/{i}.dcm", bytes(range(256)) * 8)
            out.writestr(f"study/{i}.txt", "text " * 50)
    into = root / "unpacked"

    def read() -> None:
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        try:
            unpack(path, into)
        finally:
            outside = {p.name for p in root.iterdir()} - known
            assert not outside, f"written outside: {outside}"

    known = {p.name for p in root.iterdir()} | {"unpacked"}
    return Target([path], read)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "tables": cohort_tables,
    "description": cohort_description,
    "images": lambda root: study(root, ".nii.gz"),
    "sidecars": lambda root: study(root, ".json"),
    "pipeline": pipeline_yaml,
    "decision": decision_yaml,
    "scores": scores_beside_dicom,
    "bundle": lambda root: bundle(root, rehash=False),
    "signed bundle": lambda root: bundle(root, rehash=True),
    "zip": archive,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fuzz") / "cohort"
    simulate(root, 1, 0, light=True)
    return root


def fuzz(kind: str, source: Path, tmp_path: Path, cases: int) -> None:
    root = tmp_path / "cohort"
    shutil.copytree(source, root)
    target = TARGETS[kind](root)
    target.before()
    target.read()  # unmutated it is accepted

    @settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, len(target.files) - 1), MUTATIONS)
    def each_case(which: int, mutations: list) -> None:
        target.case(which, mutations)

    each_case()


@pytest.mark.parametrize("kind", TARGETS)
def test_a_few_mutated_inputs(kind: str, source: Path, tmp_path: Path):
    fuzz(kind, source, tmp_path, FEW)


@pytest.mark.fuzz
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", TARGETS)
def test_many_mutated_inputs(kind: str, source: Path, tmp_path: Path):
    fuzz(kind, source, tmp_path, MANY)


def test_yaml_bombs_are_refused(tmp_path: Path):
    """Aliases that would unfold to a billion values, in a place where a value is quoted back."""
    path = tmp_path / "bomb.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    for last in ("name: *a11", "learner: *a11", "learner: {params: *a11}"):
        path.write_text("\n".join([*lines, last]))
        survive(lambda: read_settings(PipelineSettings, path))
        path.write_text("\n".join([*lines, "name: x", "learner:", "  params:", "    C: *a11"]))
        survive(lambda: read_settings(PipelineSettings, path))
