"""The changes of docs/extending.md on a copy of the package: each takes the files it states."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
CHANGES = {
    # A measure.
    "base/terms/measures.yaml": [
        (
            "accuracy:",
            "answer: {title: Answer, better: higher, compares: [target, score]}\naccuracy:",
        )
    ],
    "learning/evaluation/measures/metrics.py": [
        (
            "def divergences(",
            "def answer(target, score, *, weight):\n"
            "    return 42.0 + weight @ (target - score)\n\n\n"
            "def divergences(",
        )
    ],
    # A feature with its kernel, and one without.
    "base/terms/features.yaml": [
        (
            "families:\n",
            "families:\n  roughness:\n"
            '    {definition: "roughness", unit: "1", source: "here", title: "roughness",\n'
            '     words: "how rough it is", group: "roughness",\n'
            '     measured_by: "cad.mri.features.roughness:roughness",\n'
            '     statistics: {steps: {definition: "mean step of levels"}}}\n',
        ),
        (
            '  variance: {definition: "population',
            '  midrange: {definition: "mean of the extremes", power: 1}\n'
            '  forgotten: {definition: "no kernel has it"}\n'
            '  variance: {definition: "population',
        ),
    ],
    "mri/features/intensity.py": [
        (
            "    out.mean = mean\n",
            "    out.mean = mean\n    out.midrange = (low + high) / 2\n",
        )
    ],
    # A maker's tag.
    "mri/imaging/vendor.py": [
        (
            "ELEMENTS = (\n",
            'ELEMENTS = (\n    PrivateElement("Made up", "MADE UP MR", 0x0051, 0x2A, "b-value"),\n',
        )
    ],
    # A learner that keeps an object of scikit-learn.
    "learning/learners/__init__.py": [
        ("_MODULES = {", '_MODULES = {\n    "Wrapping": "wrapping",')
    ],
    # An output.
    "folders/run_folder/folder.py": [
        (
            "    validation = ",
            '    digest = _File("digest.json", "cad.run.stages.emit")\n    validation = ',
        ),
    ],
    "run/stages/emit.py": [
        (
            "        records.write_record(new_files, record)\n",
            "        records.write_record(new_files, record)\n"
            '        write_json(new_files.digest, {"regions": len(judged.results)})\n',
        ),
        (
            "from cad.base.files import JsonObject",
            "from cad.base.files import JsonObject, write_json",
        ),
    ],
}
WRAPPING = """
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

class Wrapping(BaseEstimator):
    def fit(self, X, y):
        self.model_ = LogisticRegression().fit(X, y)
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)
"""
ROUGHNESS = """
import numpy as np

def roughness(sample):
    steps = np.empty(len(sample.start) - 1, [("steps", float)])
    for region in range(len(steps)):
        levels = sample.levels[sample.start[region] : sample.start[region + 1]]
        steps["steps"][region] = np.abs(np.diff(levels)).mean()
    return steps
"""
SCRIPT = """
import json
from pathlib import Path
import numpy as np
import pydicom
from pydicom.dataset import Dataset
from cad.mri.imaging import vendor
from cad.mri.imaging.frame_headers import TAGS
from cad.mri.columns import columns_of
from cad.base.errors import CadError
from cad.learning.evaluation.measures.table import MEASURES, Cases
from cad.mri.features.intensity import statistics
from cad.run.model.estimator import make_estimator, require_storable
from cad.folders.run_folder import RunFolder
from cad.folders.run_folder.folder import of_every_run
from cad.base.settings import FeatureSettings, PipelineSettings
from cad.base.terms.measures import MEASURES as WORDS
from cad.mri.features.images import Prepared
from cad.mri.features.measure import measure_regions
from cad.mri.features.regions import RegionVoxels
from cad.mri.imaging.volume import Volume

one = np.ones(2)
cases = Cases(one, one, one / 4, np.arange(2), is_probability=True)
row = statistics(np.array([1.0, 2.0, 6.0, 7.0]), np.array([0, 4]))[0]
settings = PipelineSettings.model_validate({"name": "t", "learner": {"name": "Wrapping"}})
try:
    refused = require_storable(make_estimator(settings), settings.learner)
except CadError as error:
    refused = error.problem
header = Dataset()
header.PatientID = "sub-1"
header.private_block(0x0051, "MADE UP MR", create=True).add_new(0x2A, "DS", "800")
header.save_as("made.dcm", implicit_vr=False, little_endian=True, enforce_file_format=False)
content = pydicom.dcmread("made.dcm", force=True, specific_tags=list(TAGS))
image = Volume(np.arange(64.0).reshape(4, 4, 4), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), np.eye(3))
region = RegionVoxels.from_masks([np.ones((4, 4, 4), bool)])
features = FeatureSettings(families=("roughness",), modalities=("t2w",))
table = measure_regions(Prepared("t2w", image), region, features)
print(json.dumps({
    "b_value": vendor.b_value(content),
    "family": {name: values.tolist() for name, values in table.items()},
    "title": columns_of(features)["t2w_roughness_steps"].title,
    "measures": [list(WORDS)[:3], list(MEASURES)[:3]],
    "answer": MEASURES["answer"](cases),
    "values": [float(row[n]) for n in ("mean", "midrange", "variance", "median")],
    "forgotten": bool(np.isnan(row["forgotten"])),
    "unit": columns_of(FeatureSettings())["adc_intensity_midrange"].unit,
    "outputs": [path.name for path in of_every_run(RunFolder(Path("run")))],
    "refused": refused,
}))
"""


def copied_package(folder: Path) -> Path:
    """Copy the package, so that a Python started in the folder imports the copy."""
    package = folder / "cad"
    shutil.copytree(ROOT / "cad", package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def test_the_steps_are_enough(tmp_path: Path) -> None:
    package = copied_package(tmp_path)
    for name, changes in CHANGES.items():
        text = (package / name).read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text, (name, old)
            text = text.replace(old, new, 1)
        (package / name).write_text(text, encoding="utf-8")
    (package / "learning" / "learners" / "wrapping.py").write_text(WRAPPING, encoding="utf-8")
    (package / "mri" / "features" / "roughness.py").write_text(ROUGHNESS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["measures"] == [["auc", "answer", "accuracy"]] * 2
    assert found["answer"] == 42.0 + 2 * 0.75
    assert found["values"] == [4.0, 4.0, 6.5, 4.0]
    assert found["forgotten"]
    assert found["b_value"] == 800.0
    # 64 ascending values in 16 levels of 4: 15 steps of one level among 63 neighbours.
    assert found["family"] == {"t2w_roughness_steps": [15 / 63]}
    assert found["title"] == "T2 roughness"
    assert found["unit"] == "1e-6 mm2/s"
    assert "digest.json" in found["outputs"]
    assert "LogisticRegression, which a bundle cannot store" in found["refused"]
    # A run writes the new output, and is computed again when it lacks it.
    table = regions_on_a_line(np.random.default_rng(0), 8, "A")
    table.to_csv(tmp_path / "regions.csv", index=False)
    pipeline = {"name": "quick", "learner": {"name": "PlattSVC"}, "validate": {"bootstraps": 20}}
    (tmp_path / "quick.yaml").write_text(json.dumps(pipeline), encoding="utf-8")
    command = "cad table validate regions.csv --patient participant_id --scores r1,r2,r3"
    validate = ["-m", *shlex.split(command), "--pipeline", "quick.yaml", "-o", "out"]
    digest = tmp_path / "out" / "digest.json"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, *validate], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(digest.read_text()) == {"regions": len(table)}
        metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
        assert "answer" in metrics["consensus"]["measures"]
        digest.unlink()


NEW_LEARNER = (ROOT / "docs" / "tutorials" / "new-learner.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the first block of code of the tutorial in one language; commands have none."""
    fenced = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    blocks = {}
    for name, content in fenced.findall(NEW_LEARNER):
        blocks.setdefault(name, content)
    return blocks[language]


def files_that_differ(package: Path) -> list[str]:
    """Return the files of a copy that the package lacks or that have other bytes there."""
    differ = []
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        original = ROOT / "cad" / name
        if path.is_dir() or "__pycache__" in name.parts:
            continue
        if not original.is_file() or original.read_bytes() != path.read_bytes():
            differ.append(name.as_posix())
    return differ


def regions_on_a_line(rng: np.random.Generator, patients: int, first: str) -> pd.DataFrame:
    """Draw three regions of each patient: one feature, and scores on which the readers agree."""
    likely = rng.normal(size=3 * patients)
    score = np.clip(np.round(3 + likely), 1, 5).astype(int)
    return pd.DataFrame(
        {
            "participant_id": [f"{first}{i // 3:02}" for i in range(3 * patients)],
            "adc_mean": 1200 - 200 * likely + rng.normal(0, 60, 3 * patients),
            "r1": score,
            "r2": score,
            "r3": score,
        }
    )


def test_a_new_learner_is_trained_stored_loaded_and_predicts(tmp_path: Path) -> None:
    """Do what the tutorial tells a newcomer, with the text that the page shows."""
    package = copied_package(tmp_path)
    learners = package / "learning" / "learners"
    (learners / "nearest.py").write_text(block("{code-cell}"), encoding="utf-8")
    line = re.search(r'`("NearestReaders": "nearest",)`', NEW_LEARNER)
    assert line
    table = learners / "__init__.py"
    text = table.read_text(encoding="utf-8")
    changed = text.replace("_MODULES = {\n", f"_MODULES = {{\n    {line[1]}\n", 1)
    table.write_text(changed, encoding="utf-8")
    assert files_that_differ(package) == [
        "learning/learners/__init__.py",
        "learning/learners/nearest.py",
    ]
    (tmp_path / "nearest.yaml").write_text(block("yaml"), encoding="utf-8")
    rng = np.random.default_rng(0)
    training = regions_on_a_line(rng, 8, "A")
    new = regions_on_a_line(rng, 2, "B")
    training.to_csv(tmp_path / "regions.csv", index=False)
    new.drop(columns=["r1", "r2", "r3"]).to_csv(tmp_path / "new.csv", index=False)
    commands = block("").splitlines()
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "cad"
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    metadata = json.loads((tmp_path / "MODEL" / "metadata.json").read_text())
    assert metadata["structure"]["state"]["steps"]["list"][-1]["tuple"][1]["class"] == (
        "NearestReaders"
    )
    # Where all readers agree on every region, all labels are equally sure. So a new region gets the
    # plain mean of the labels of the five nearest training regions. A score of 1 to 5 is a label of
    # 0 to 1.
    scored = pd.read_csv(tmp_path / "scored.csv")
    for row in range(len(new)):
        distance = np.abs(training["adc_mean"] - new["adc_mean"][row])
        nearest = np.argsort(distance)[:5]
        expected = ((training["r1"][nearest] - 1) / 4).mean()
        np.testing.assert_allclose(scored["belief"][row], expected, atol=1e-12)


def test_every_place_that_a_page_names_is_there() -> None:
    """A file of the package, or a name in it as ``file::name``."""
    place = re.compile(r"`(cad/[\w/.]+\.(?:py|yaml|j2))(?:::(\w+))?`")
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md"]
    named = [(page.name, *found) for page in pages for found in place.findall(page.read_text())]
    assert len(named) > 20
    assert [one for one in named if not (ROOT / one[1]).is_file()] == []
    missing = [
        (page, file, name)
        for page, file, name in named
        if name and not re.search(rf"\b(def|class) {name}\b", (ROOT / file).read_text())
    ]
    assert missing == []
