"""Shadow models score everything and show nothing; the champion is changed by a command."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from crash_points import Copies, Death, Watch, child
from dicom_files import write_series

from cad.base.errors import CadError
from cad.base.settings import parse_settings, read_settings
from cad.base.share import find, shared
from cad.base.transactions.lock import locked
from cad.folders.cohort import read_cohort
from cad.folders.cohort.traces import Names
from cad.hospital.node import champion
from cad.hospital.node.champion import promote
from cad.hospital.node.compute import RUN, WATCH, compute, keep_watch, objects
from cad.hospital.node.names import key_of, node_key
from cad.hospital.node.pseudonyms import hidden_truths
from cad.hospital.node.queue import STATES, Queue
from cad.hospital.node.settings import ModelsInUse, NodeSettings
from cad.hospital.node.withdrawal import NodeHome
from cad.run.audit.trail import DamagedTrail, append, verify
from cad.run.workflows.watch import Truth, contests, read_watched

CHAMPION, SHADOW = "phantom-psvm", "phantom-psvm-biparametric"
FILE = """\
# our node
home: {home}
rules: sample
models: # who scores
  champion: [phantom-psvm]
  shadow: [phantom-psvm-biparametric]

receiver: {{callers: [PACS]}} # all others are refused
archive:
  address: 127.0.0.1:1
"""


def settings_of(home: Path, models: object) -> NodeSettings:
    content = {
        "home": str(home),
        "rules": "sample",
        "models": models,
        "receiver": {"callers": ["ANY"]},
        "archive": {"address": "127.0.0.1:1"},
    }
    return parse_settings(NodeSettings, content, "the test's node")


def test_a_plain_list_names_champions(tmp_path: Path):
    settings = settings_of(tmp_path, [CHAMPION, SHADOW])
    assert settings.models == ModelsInUse(champion=(CHAMPION, SHADOW))
    with pytest.raises(CadError, match="as champion and as shadow"):
        settings_of(tmp_path, {"champion": [CHAMPION], "shadow": [CHAMPION]})


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_shadow_scores_and_nothing_shows_it(tmp_path: Path):
    (source,) = (shared("sample_data") / "dicom").iterdir()
    incoming = shutil.copytree(source, tmp_path / "incoming")
    home = tmp_path / "home"
    models = {"champion": [CHAMPION], "shadow": [SHADOW, "phantom-psvm-absent"]}
    settings = settings_of(home, models)
    key = "0123456789abcdef"
    work = home / "studies" / key
    made, _ = compute(settings, incoming, work)
    assert made == len(objects(work))
    before = everything(work)
    failed = keep_watch(settings, work)
    # Every page and every object for the archive is byte for byte the same as before.
    assert everything(work) == before
    assert not [path for path in work.iterdir() if path.name not in ("cohort", RUN)]
    for path, content in before.items():
        assert SHADOW.encode() not in content or path.endswith(("run.json", ".parquet"))
    # A shadow that fails costs nothing but itself.
    assert len(failed) == 1
    assert failed[0].startswith("phantom-psvm-absent: ")
    assert [path.name for path in (home / WATCH).iterdir()] == [f"{key}.json"]
    assert (home / WATCH / f"{key}.json").stat().st_mode & 0o077 == 0
    rows = read_watched(home / WATCH)
    assert [(row.role, row.model) for row in rows] == [("champion", CHAMPION), ("shadow", SHADOW)]
    assert rows[0].regions.keys() == rows[1].regions.keys()
    assert rows[0].regions != rows[1].regions
    assert set(rows[0].inputs) == {"T2", "ADC", "DCE"}
    assert set(rows[1].inputs) == {"T2", "ADC"}
    # No label and no region's id is kept: keys stand for them, and truth finds its way by them.
    text = (home / WATCH / f"{key}.json").read_text()
    (man,) = set(read_cohort(work / "cohort").rois["participant_id"])
    assert man not in text
    rois = read_cohort(work / "cohort").rois
    truths = [Truth(man, str(roi), False) for roi in rois["roi_id"]]
    assert contests(rows, truths) == []
    (contest,) = contests(rows, hidden_truths(home, truths))
    assert contest.regions == len(rois)


def kept_for(home: Path, name: str, man: str) -> Path:
    """Write what a node keeps of a man, without any study."""
    row = {
        "role": "champion",
        "model": CHAMPION,
        "man": key_of(node_key(home), man),
        "night": 739000,
        "maker": "",
        "inputs": {},
        "outside": {},
        "belief": 0.0,
        "decision": 0.5,
        "regions": {"1": 0.5},
    }
    path = home / WATCH / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([row]))
    return path


def test_who_withdraws_leaves_what_is_kept_for_comparisons_too(inbox, tmp_path: Path):
    for path in write_series(tmp_path / "a", np.ones((3, 16, 16), np.uint16), patient="MRN7"):
        with inbox.copied(path) as copy:
            inbox.keep(copy, "SCANNER")
    (key,) = (entry.key for entry in inbox.queue.latest(STATES))
    of_study = kept_for(inbox.home, key, "sub-MRN7")
    # Of a study whose images were swept long ago.
    of_label = kept_for(inbox.home, "00112233445566ff", "sub-MRN7")
    of_another = kept_for(inbox.home, "aa112233445566ff", "sub-MRN77")
    inbox.queue.close()
    names = Names("sub-MRN7", source_ids=frozenset({"MRN7"}))
    assert NodeHome(inbox.home).sweep(names, None) == 1
    assert not of_study.exists()
    assert not of_label.exists()
    assert of_another.exists()


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A stopped node's settings file; its queue and trail are in its home."""
    home = tmp_path / "home"
    home.mkdir()
    queue = Queue(home / "queue.sqlite")
    queue.note_line(append(home / "audit.jsonl", {"event": "start"}))
    queue.close()
    config = tmp_path / "node.yaml"
    config.write_text(FILE.format(home=home))
    return config


def lines(config: Path) -> list[dict]:
    text = (config.parent / "home" / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_change_of_champion_is_written_down_and_taken_back(node: Path, main_here):
    before = node.read_text()
    ended = main_here("watch", "promote", SHADOW, "--config", node)
    assert ended.returncode == 0, ended.stderr
    models = read_settings(NodeSettings, node).models
    assert models.champion == (SHADOW,)
    assert models.shadow == (CHAMPION,)
    # Everything else of the file stays, comments too.
    assert "# our node\n" in node.read_text()
    assert "receiver: {callers: [PACS]} # all others are refused\n" in node.read_text()
    last = lines(node)[-1]["entry"] if "entry" in lines(node)[-1] else lines(node)[-1]
    assert last["event"] == "champion"
    assert last["from"]["name"] == CHAMPION
    assert last["to"]["name"] == SHADOW
    assert len(last["to"]["sha256"]) == 64
    queue = Queue(node.parent / "home" / "queue.sqlite")
    assert verify(node.parent / "home" / "audit.jsonl", queue.last_line()).problems == []
    queue.close()
    promote(node, CHAMPION)
    assert yaml.safe_load(node.read_text()) == yaml.safe_load(before)
    assert len(lines(node)) == 3


def test_one_of_several_champions_is_replaced_in_its_place(node: Path):
    text = node.read_text().replace("[phantom-psvm]", "[other, phantom-psvm]")
    node.write_text(text)
    done = promote(node, SHADOW, in_place_of=CHAMPION)
    assert done["champion"] == ["other", SHADOW]
    assert done["shadow"] == [CHAMPION]


def test_what_cannot_be_a_champion_is_refused_and_nothing_changes(node: Path):
    before = node.read_text()
    with pytest.raises(CadError, match="no shadow of this node"):
        promote(node, "phantom-psvm")
    with pytest.raises(CadError, match="no champion of this node"):
        promote(node, SHADOW, in_place_of="nobody")
    with locked(node.parent / "home"), pytest.raises(CadError, match="the node is running"):
        promote(node, SHADOW)
    trail = node.parent / "home" / "audit.jsonl"
    trail.write_text(trail.read_text().replace("start", "stops"))
    with pytest.raises(DamagedTrail, match="not what was written"):
        promote(node, SHADOW)
    assert node.read_text() == before


def test_settings_that_are_a_link_are_refused_and_stay(node: Path):
    target = node.rename(node.with_name("target.yaml"))
    node.symlink_to(target)
    before = target.read_text()
    trail = lines(node)
    with pytest.raises(CadError, match="a link") as caught:
        promote(node, SHADOW)
    assert str(target) in caught.value.hint
    assert node.is_symlink()
    assert target.read_text() == before
    assert lines(node) == trail
    promote(target, SHADOW)
    assert read_settings(NodeSettings, node).models.champion == (SHADOW,)


def test_a_file_whose_models_cannot_be_told_apart_is_refused(node: Path):
    home = node.parent / "home"
    models = "{champion: [phantom-psvm], shadow: [phantom-psvm-biparametric]}"
    node.write_text(
        f'{{home: "{home}", rules: sample, models: {models}, receiver: {{callers: [A]}}, '
        "archive: {address: '127.0.0.1:1'}}\n"
    )
    with pytest.raises(CadError, match="not found as lines of its own"):
        promote(node, SHADOW)


def models_of(config: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return champions and shadows of a node's settings file."""
    models = read_settings(NodeSettings, config).models
    return models.champion, models.shadow


def killed_before_the_queue_knows(config: Path) -> int:
    """Promote, and die where the trail has the line and the queue does not know of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "note_line", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        promote(config, SHADOW)
    return 0


def test_a_kill_at_any_moment_leaves_the_old_champion_or_the_new_one(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Before every call that changes a file, and in the middle of what is written, death comes."""
    # Reading the models changes no file: each is read once, for all deaths.
    monkeypatch.setattr(champion, "load_bundle", functools.cache(champion.load_bundle))
    for name in (CHAMPION, SHADOW):
        champion.load_bundle(find("models", name))
    old = ((CHAMPION,), (SHADOW,))
    new = ((SHADOW,), (CHAMPION,))
    place = node.parent
    before = shutil.copytree(place, tmp_path.with_name(tmp_path.name + "-before"))
    output = before.with_name(before.name + "-output")
    copies = Copies(place, before / "unused", 10**6, 1)

    def command() -> int:
        promote(node, SHADOW)
        return 0

    def recorded() -> int:
        promote(node, SHADOW)
        copies.end()
        output.write_text(json.dumps(copies.points))
        return 0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking where threads may be
        assert child(recorded, output, Watch(place, copies)) == 0
        assert models_of(node) == new
        points = json.loads(output.read_text())
        assert len(points) >= 5
        left = []
        for point in [*points, "before the queue knows"]:
            shutil.rmtree(place)
            shutil.copytree(before, place)
            if point in points:
                code = child(command, output, Watch(place, Death(point)))
            else:
                code = child(lambda: killed_before_the_queue_knows(node), output)
            assert code in (-signal.SIGKILL, -signal.SIGXFSZ), point
            assert models_of(node) in (old, new), point
            left.append(models_of(node))
            queue = Queue(place / "home" / "queue.sqlite")
            assert verify(place / "home" / "audit.jsonl", queue.last_line()).problems == [], point
            queue.close()
            if models_of(node) == old:
                promote(node, SHADOW)  # the same command goes on
            assert models_of(node) == new, point
            assert lines_of(place / "home")[-1]["to"]["name"] == SHADOW, point
        assert old in left


def lines_of(home: Path) -> list[dict]:
    """Return the entries of a node's trail."""
    text = (home / "audit.jsonl").read_text()
    return [json.loads(line)["entry"] for line in text.splitlines()]
