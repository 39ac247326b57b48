"""Every file of the program has a row in one table that says what a withdrawal does with it.

The table is held against every kind of folder in the code, against the files that the real commands
write, and against what a withdrawal then does.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from crash_cases import QUICK
from live_node import make_settings, sample_study
from reading_cases import export
from secret_scan import hits
from typer.testing import CliRunner

import cad
from cad.base.share import shared
from cad.base.transactions import FolderKind
from cad.cli import app
from cad.evidence.phantom import simulate
from cad.hospital.node.service import Node
from cad.run.execution.options import ExecutionOptions
from cad.run.execution.pool import Caller

GOES, ROWS, SAID, NOBODY = "goes", "its rows, lines or cases go", "is named", "names nobody"
RUN = {
    "studies/sub-*.npz": GOES,
    "report/sub-*.html": GOES,
    "maps/sub-*": GOES,
    "dicom/sub-*.dcm": GOES,
    "fhir/sub-*.json": GOES,
    "folds/*.npy": GOES,
    ".complete": GOES,
    "features.parquet": ROWS,
    "labels.parquet": ROWS,
    "*.csv": ROWS,
    "*.jsonl": ROWS,
    "run.json": SAID,
    "metrics.json": SAID,
    "report/index.html": SAID,
    "validation.md": SAID,
    "figures/*.svg": NOBODY,
}
COHORT = {
    "sub-*/*": GOES,
    "*.tsv": ROWS,
    "sourcedata/pseudonym.key*": NOBODY,
    "dataset_description.json": NOBODY,
    ".bidsignore": NOBODY,
}
TREATED: dict[str, dict[str, str]] = {
    "cohort": COHORT,
    "reader study": {
        "cases/case-*.js": GOES,
        "reading.json": ROWS,
        "*.html": ROWS,
        "*.jsonl": ROWS,
        "readings.tsv": ROWS,
    },
    "comparison": {"comparison.json": SAID, **{f"*/{name}": what for name, what in RUN.items()}},
    "model": {
        "training.parquet": SAID,
        "metadata.json": SAID,
        "hashes.json": NOBODY,
        "README.md": NOBODY,
        "*.npz": NOBODY,
    },
    "what nights leave of their men": {"*.json": SAID},
    "result of an experiment": {"*": NOBODY},  # no patient of a cohort
    **{f"result of `cad {name}`": RUN for name in ("run", "train", "predict")},
    "node": {
        "incoming/*/*.dcm": GOES,
        "studies/*/*": GOES,
        "queue.sqlite*": ROWS,
        "watch/*.json": GOES,
        "audit.jsonl": NOBODY,
        "audit.jsonl.key": NOBODY,
        "node.key": NOBODY,
    },
}
MARK = ".cad-kind"


def row(kind: str, name: str) -> str:
    """The fate of a file at a withdrawal."""
    rows = TREATED[kind].items()
    return next((what for pattern, what in rows if fnmatchcase(name, pattern)), "no row")


def test_every_kind_of_folder_that_is_written_has_its_rows():
    kinds = set()
    for module in pkgutil.walk_packages(cad.__path__, "cad."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                several = value.values() if isinstance(value, dict) else (value,)
                kinds |= {one.name for one in several if isinstance(one, FolderKind)}
    assert kinds | {"node"} == set(TREATED)


def do(*words: str) -> str:
    done = CliRunner().invoke(app, [*words])
    assert isinstance(done.exception, SystemExit | None), (words, done.output, done.exception)
    return done.stdout


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Folders of every kind that two men are in, and their kinds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Caller, "__call__", lambda self, function, *given: function(*given))
    simulate(Path("cohort"), 2, 1, light=True)
    for unread in sorted(Path("cohort").glob("sub-*/[dp]*")):  # T2 is measured alone
        shutil.rmtree(unread)
    Path("quick.yaml").write_text(QUICK)
    scaled = QUICK.replace("quick", "scaled") + "images: {t2_standardisation: nyul}\n"
    Path("scaled.yaml").write_text(scaled)
    on = ("--cohort", "cohort", "-o")
    do("train", "quick.yaml", *on, "model")
    do("compare", "quick.yaml", "scaled.yaml", *on, "compared")
    do("model", "compare", "model", "model", *on, "both")
    shutil.copytree("compared/quick", "part/quick")  # tables of one meaning
    do("table", "train", "part", "-o", "learned", "--learner", "extra trees on p")
    do("reading", "cohort", "--readers", "r1,r2", "-o", "study")
    export(Path("study"), "r1")
    do("reading", "cohort", "-o", "study", "--collect", "study/r1-session-1.jsonl")
    rows = Path("cohort/rois.tsv").read_text().splitlines(keepends=True)
    at = rows[0].rstrip().split("\t").index("histology")
    cells = [line.rstrip("\n").split("\t") for line in rows]
    for line in cells[1:]:
        line[at] = "n/a"
    Path("cohort/rois.tsv").write_text("".join("\t".join(line) + "\n" for line in cells))
    do("suggest", "--model", "model", *on, "suggested")
    do("import", str(shared("sample_data") / "dicom"), "imported", "--rules", "sample")
    do("predict", "--model", "model", "--cohort", "imported", "-o", "predicted", "--map")
    do("watch", "night", "predicted", "--cohort", "imported", "--model", "model", "-o", "watched")
    do("report", "predicted", "--dicom", "--fhir", "--cohort", "imported")
    do("experiment", "niaf2014-outlier", "-o", "experiment", "--repeats", "1")
    compute_in_a_node(Path("home").absolute(), Path("sent").absolute())
    return {
        "cohort": "cohort",
        "imported": "cohort",
        "model": "model",
        "model.validation": "result of `cad train`",
        "compared": "comparison",
        "both": "comparison",
        "learned": "model",
        "suggested": "result of `cad suggest`",
        "predicted": "result of `cad predict`",
        "watched": "what nights leave of their men",
        "study": "reader study",
        "experiment": "result of an experiment",
        "home": "node",
    }


def compute_in_a_node(home: Path, sent: Path) -> None:
    """The sample study comes and is computed; nobody takes its result."""
    node = Node(make_settings(home, studies={"quiet_seconds": 0.01}), retry_failed=False)
    sent.mkdir()
    try:
        for number, image in enumerate(sample_study(sent)):
            image.save_as(sent / f"{number}.dcm")
            with node.inbox.copied(sent / f"{number}.dcm") as copy:
                node.inbox.keep(copy, "SCANNER")
        while not node.complete_one():
            pass
        assert node._computing(Caller(ExecutionOptions()))()
        assert node.send_one()
    finally:
        node.receiver.stop()
        node.page.stop()
        node.inbox.close()
        node.queue.close()


def files(folder: str) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file()}


def holding(folder: str, man: str) -> set[str]:
    return {hit.split(" in ", 1)[1] for hit in hits([Path(folder)], [man])}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(900)
def test_every_file_that_is_written_has_a_row_and_is_treated_as_it_says(written):
    treated = {
        (folder, name): row(kind, name)
        for folder, kind in written.items()
        for name in sorted(files(folder))
        if Path(name).name != MARK
    }
    assert [place for place, what in treated.items() if what == "no row"] == []
    assert {what for kind in TREATED.values() for what in kind.values()} == set(treated.values())
    men = {
        "sub-0001": ("cohort", "model.validation", "compared", "both", "suggested", "study"),
        "sub-Sample0001": ("imported", "predicted", "watched"),
    }
    for folder in written:
        for name in holding(folder, "sub-0001") | holding(folder, "Sample0001"):
            assert treated.get((folder, name)) != NOBODY, (folder, name)
    for man, (cohort, *runs) in men.items():
        words = [word for run in runs for word in ("--runs", run)]
        words += ["--node", "home"] if man == "sub-Sample0001" else []
        said = json.loads(do("cohort", "remove", man, "--cohort", cohort, *words, "--json"))
        held = said["still_held"]
        for folder in (cohort, *runs):
            left = holding(folder, man)
            assert left <= set(held.get(folder, ())), folder
            for name in left:
                assert treated[folder, name] == SAID or "report/sub-" in name, name
                assert man not in name
    assert not [name for name in files("compared") if "folds" in name or ".complete" in name]
    assert holding("home", "Sample0001") == set()
    # Named as a whole, where --models says which model.
    assert holding("model", "sub-0001") <= {"training.parquet", "metadata.json"}
