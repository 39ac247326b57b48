"""The folder that MHub takes a model as: whole, of one name, and run by MHub's own modules."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cad.base.share import find, shared
from cad.hospital.contracts.grand_challenge import LIKELIHOOD
from cad.hospital.contracts.mhub import MAP, NAME
from cad.mri.imaging.nifti import read_image

CORE = {"FileStructureImporter", "ReportExporter", "DataOrganizer"}
RESULTS = ["SEG.dcm", "SR.dcm", LIKELIHOOD, MAP, "report.html"]


@pytest.fixture
def folder(repository: Path) -> Path:
    return repository / "contracts" / "mhub"


def runner(folder: Path) -> ast.ClassDef:
    """Return the class of the model's own module: MHub finds it by the name of its file."""
    (path,) = [path for path in (folder / "utils").glob("*.py") if path.stem != "__init__"]
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    (module,) = [node for node in classes if ast.unparse(node.bases[0]) == "Module"]
    assert module.name == path.stem
    return module


def outputs(module: ast.ClassDef) -> dict[str, str]:
    """Return the data type of every output file of the runner, by its name."""
    (task,) = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    types = {}
    for decorator in task.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "IO.Output":
            name, file, kind = (ast.literal_eval(value) for value in decorator.args[:3])
            assert name in [argument.arg for argument in task.args.args]
            types[file] = kind
    return types


def test_the_workflow_runs_modules_that_are_there_and_brings_every_file_out(folder: Path):
    content = yaml.safe_load((folder / "config" / "default.yml").read_text())
    assert content["general"]["data_base_dir"] == "/app/data"
    assert content["general"]["description"]
    module = runner(folder)
    assert set(content["execute"]) == CORE | {module.name}
    assert content["execute"].index(module.name) < content["execute"].index("DataOrganizer")
    assert set(content["modules"]) <= set(content["execute"])
    find("configs/import", content["modules"][module.name]["rules"], ".yaml")
    targets = dict(
        target.split("-->[i:sid]/") for target in content["modules"]["DataOrganizer"]["targets"]
    )
    assert {file: kind for kind, file in targets.items() if kind != "json:mod=report"} == outputs(
        module
    )
    assert sorted(outputs(module)) == sorted(RESULTS)


def test_the_image_is_built_as_mhub_asks(folder: Path):
    text = (folder / "dockerfiles" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines[0] == "FROM mhubai/base:latest"
    assert not [line for line in lines if line.startswith(("COPY", "ADD"))]
    assert lines[-2:] == [
        'ENTRYPOINT ["python3", "-m", "mhubio.run"]',
        'CMD ["--workflow", "default"]',
    ]
    # Its name is the card's, and that of the folder in MHub's repository.
    assert json.loads((folder / "meta.json").read_text())["name"] == NAME
    assert f"RUN buildutils/import_mhub_model.sh {NAME} ${{MHUB_MODELS_REPO}}" in lines
    assert "ARG MHUB_MODELS_REPO" in lines


def test_the_page_says_what_stands_for_the_address(folder: Path, repository: Path):
    page = (repository / "docs" / "containers.md").read_text()
    assert "ARG CAD_SOURCE" in (folder / "dockerfiles" / "Dockerfile").read_text()
    assert "--build-arg CAD_SOURCE=git+ADDRESS@COMMIT" in page
    assert NAME in page


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_mhubs_own_modules_run_the_folder(folder: Path, repository: Path, tmp_path: Path):
    python = os.environ.get("CAD_MHUBIO_PYTHON")
    if not python:
        pytest.skip("MHUBIO ABSENT: name a Python that has mhubio in CAD_MHUBIO_PYTHON")
    (tmp_path / "input_data").mkdir()
    for study in shared("sample_data", "dicom").iterdir():
        shutil.copytree(study, tmp_path / "input_data" / study.name)
    program = Path(sys.executable).with_name("cad")
    support = repository / "tests" / "support" / "run_mhub.py"
    ended = subprocess.run(
        [python, support, folder, tmp_path, program, "sample"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (study,) = (tmp_path / "output_data").iterdir()
    assert study.name == "Sample0001"
    assert sorted(path.name for path in study.iterdir()) == sorted([*RESULTS, "report.json"])
    likelihood = json.loads((study / LIKELIHOOD).read_text())
    assert json.loads((study / "report.json").read_text()) == {"cspca_likelihood": likelihood}
    assert 0 < float(read_image(study / MAP).array.max()) <= likelihood + 1e-6
