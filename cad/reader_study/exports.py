"""Collect what readers exported into the cohort's scores, with every rule checked."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from cad.cohort import read_cohort
from cad.cohort.tables import MISSING
from cad.errors import CadError
from cad.evaluation.mrmc import obuchowski_rockette
from cad.files import JsonObject, as_given, each_cell, harmless, write_atomic
from cad.folders import commit, owned, stage
from cad.imaging.nifti import write_volume
from cad.imaging.volume import Volume
from cad.labels.scales import check_score, score_probability
from cad.stages.reader_outlines import outline_maps, require_outlines
from cad.stages.reader_study import ALONE, FORMAT, KEY, WITH_TOOL

COLUMNS = ["participant_id", "roi_id", "reader_id", "session", "condition", "scale", "score",
           "milliseconds", "note"]  # fmt: skip
_FIELDS = {"case", "roi", "score", "condition", "milliseconds"}
_AGAIN = "export it again from the reader's page"


@dataclass(frozen=True)
class Export:
    """Hold one file that a reader's page wrote."""

    path: Path
    content: JsonObject

    @property
    def who(self) -> tuple[str, int]:
        """Return reader and session."""
        return str(self.content["reader"]), int(self.content["session"])


def collect_reading(root: Path, folder: Path, paths: Sequence[Path]) -> list[str]:
    """Join exports into ``scores.tsv`` and write ``readings.tsv`` beside the study's key.

    Corrected outlines become label maps ``masks/<study>_desc-<reader>_rois.nii.gz``.

    Lines that ``scores.tsv`` has stay as they are, to the byte; a score that was ``n/a`` is filled
    in its place, new ones follow in the order of ``rois.tsv``. Readings with the tool are no
    independent opinions: they stand in ``readings.tsv`` only.

    Parameters
    ----------
    root : Path
        Cohort folder.
    folder : Path
        What ``cad reading`` wrote, with ``reading.json``.
    paths : sequence of Path
        Exports, ``<reader>-session-<n>.jsonl``.

    Returns
    -------
    list of str
        What was collected, what is missing, and the comparison with and without the tool.

    Raises
    ------
    CadError
        Before anything is written: for an export that was changed, of another study, of an unknown
        reader, case or region, with a score off its scale, or two different ones of one reader and
        session; for a score that ``scores.tsv`` has otherwise; and as
        :func:`cad.stages.reader_outlines.outline_maps`.
    """
    key = _key(folder / KEY)
    exports = _one_each([read_export(path, key) for path in paths])
    readings = pd.DataFrame([row for e in exports for row in _rows(e, key)], columns=COLUMNS)
    # Between reading the scores and writing them nobody else does.
    with owned(root), owned(folder):
        cohort = read_cohort(root)
        pair = ["participant_id", "roi_id"]
        rows = cohort.rois[pair].itertuples(index=False, name=None)
        place = {tuple(row): k for k, row in enumerate(rows)}
        at = [place.get(row, -1) for row in readings[pair].itertuples(index=False, name=None)]
        if -1 in at:
            row = readings.iloc[at.index(-1)]
            raise CadError("the region is not in the cohort any more", file=root / "rois.tsv",
                           patient=row["participant_id"], roi=row["roi_id"])  # fmt: skip
        readings = (
            readings.assign(at=at).sort_values(["reader_id", "session", "at"]).drop(columns="at")
        )
        path = root / "scores.tsv"
        text = merged(
            path.read_text(encoding="utf-8"), readings[readings["condition"] == ALONE], path
        )
        maps = outline_maps(cohort, [(e.path, e.content) for e in exports], key)
        write_atomic(folder / "readings.tsv", _tsv(readings).encode())
        _commit(root, text, maps)
    drawn = [f"corrected outlines: {name}" for name in maps]
    return [*_said(exports, key), *drawn, *_compared(readings, cohort.rois)]


def _commit(root: Path, scores: str, maps: Mapping[str, Volume]) -> None:
    """Put scores and label maps into the cohort together."""
    with stage(root) as scratch:
        new = {"scores.tsv": scratch / "scores.tsv"}
        write_atomic(new["scores.tsv"], scores.encode())
        for number, (name, labels) in enumerate(maps.items()):
            new[name] = scratch / f"{number}.nii.gz"
            write_volume(new[name], labels)
        commit(root, new)


def read_export(path: Path, key: JsonObject) -> Export:
    """Read one export and check it against the study's key.

    Raises
    ------
    CadError
        As :func:`collect_reading`.
    """
    content = _unchanged(path)
    if content.get("format") != FORMAT:
        raise CadError(f"not an export of {FORMAT!r}", file=path)
    if content.get("study") != key["study"]:
        raise CadError(
            f"the export is of reader study {content.get('study')}, this folder is {key['study']}",
            file=path,
            hint="give the folder whose pages the reader used",
        )
    who = (content.get("reader"), content.get("session"))
    planned = {(s["reader"], s["session"]): dict(s["cases"]) for s in key["sessions"]}
    if who not in planned:
        raise CadError(f"reader {who[0]}, session {who[1]} is not in this study", file=path)
    seen = set()
    for reading in content["readings"]:
        if not isinstance(reading, dict) or not set(reading) >= _FIELDS:
            raise CadError(f"a reading has {', '.join(sorted(_FIELDS))}", file=path, hint=_AGAIN)
        code, roi = str(reading["case"]), str(reading["roi"])
        if code not in planned[who] or roi not in key["cases"][code]["rois"]:
            raise CadError(f"{code}, region {roi} is not in this session", file=path, hint=_AGAIN)
        if planned[who][code] != reading["condition"]:
            raise CadError(f"{code} was planned {planned[who][code]}", file=path, hint=_AGAIN)
        if (code, roi) in seen:
            raise CadError(f"{code}, region {roi} stands twice", file=path, hint=_AGAIN)
        seen.add((code, roi))
        try:
            check_score(key["scale"], float(reading["score"]))
        except CadError as error:
            raise error.at(file=path) from None
    require_outlines(path, content, key)
    return Export(path, content)


def _unchanged(path: Path) -> JsonObject:
    """Return the content of an export whose second line proves the first."""
    try:
        lines = path.read_bytes().split(b"\n")
        content, proof = json.loads(lines[0]), json.loads(lines[1])
        same = proof["crc32"] == f"{zlib.crc32(lines[0]):08x}"
        whole = isinstance(content, dict) and isinstance(content.get("readings"), list)
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise CadError(f"no whole export: {error}", file=path, hint=_AGAIN) from error
    if not same or not whole or any(line.strip() for line in lines[2:]):
        raise CadError(
            "the export was changed after the page wrote it",
            file=path,
            hint=f"{_AGAIN}; a correction is made there, or in scores.tsv after collecting",
        )
    return dict(content)


def _key(path: Path) -> JsonObject:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] == FORMAT:
            return dict(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CadError("no reader study", file=path, hint="make one with cad reading") from error
    raise CadError(f"not a reader study of {FORMAT!r}", file=path)


def _one_each(exports: Sequence[Export]) -> list[Export]:
    """Return one export a reader and session; the same file twice counts once."""
    found: dict[tuple[str, int], Export] = {}
    for export in exports:
        known = found.setdefault(export.who, export)
        if known.content != export.content:
            reader, session = export.who
            raise CadError(
                f"two different exports of reader {reader}, session {session}: {known.path.name} "
                f"and {export.path.name}",
                file=export.path,
                hint="give the later one only; two people need two reader ids",
            )
    return [found[who] for who in sorted(found)]


def _rows(export: Export, key: JsonObject) -> list[tuple[object, ...]]:
    reader, session = export.who
    return [
        (
            key["cases"][r["case"]]["participant_id"],
            str(r["roi"]),
            reader,
            session,
            r["condition"],
            key["scale"],
            float(r["score"]),
            int(r["milliseconds"]),
            " ".join(str(r.get("note", "")).split()) or MISSING,
        )
        for r in export.content["readings"]
    ]


def merged(text: str, new: pd.DataFrame, path: Path) -> str:
    """Return ``scores.tsv`` with new readings; what it holds stays to the byte.

    Raises
    ------
    CadError
        Where it holds another score of the same reader and region.
    """
    lines = text.splitlines()
    head = lines[0].split("\t")
    column = {name: head.index(name) for name in COLUMNS if name in head}
    known = {}
    for k, line in enumerate(lines[1:], start=1):
        cells = line.split("\t")
        known[tuple(as_given(cells[column[c]]) for c in COLUMNS[:3])] = k
    for row in new.itertuples(index=False):
        who = (row.participant_id, row.roi_id, row.reader_id)
        values = {"participant_id": who[0], "roi_id": harmless(who[1]),
                  "reader_id": harmless(who[2]), "scale": row.scale,
                  "score": f"{row.score:g}"}  # fmt: skip
        if who not in known:
            lines.append("\t".join(values.get(name, MISSING) for name in head))
            continue
        cells = lines[known[who]].split("\t")
        before, scale = cells[column["score"]], cells[column["scale"]]
        if before in (MISSING, ""):
            for name, value in values.items():
                cells[column[name]] = value
            lines[known[who]] = "\t".join(cells)
        elif scale != row.scale or float(before) != row.score:
            raise CadError(
                f"reader {who[2]} has {scale} {before} there, the export says {row.scale} "
                f"{row.score:g}",
                file=path,
                patient=who[0],
                roi=who[1],
                hint="one of both is right: delete the line, or leave the export out",
            )
    return "\n".join(lines) + "\n"


def _tsv(readings: pd.DataFrame) -> str:
    shown = readings.assign(score=[f"{score:g}" for score in readings["score"]])
    return str(each_cell(shown, harmless).to_csv(sep="\t", index=False, lineterminator="\n"))


def _said(exports: Sequence[Export], key: JsonObject) -> list[str]:
    wanted = {(s["reader"], s["session"]): s["cases"] for s in key["sessions"]}
    given = {export.who: export.content["readings"] for export in exports}
    lines = []
    for (reader, session), cases in sorted(wanted.items()):
        regions = sum(len(key["cases"][code]["rois"]) for code, _ in cases)
        n = len(given.get((reader, session), []))
        state = "complete" if n == regions else f"{regions - n} missing"
        lines.append(f"reader {reader}, session {session}: {n} of {regions} regions, {state}")
    return lines


def _compared(readings: pd.DataFrame, rois: pd.DataFrame) -> list[str]:
    """Return what the tool did for the readers, where both conditions were read."""
    if set(readings["condition"]) != {ALONE, WITH_TOOL}:
        return []
    values = [score_probability(s, v) for s, v in zip(readings["scale"], readings["score"], strict=True)]  # noqa: E501  # fmt: skip
    wide = readings.assign(value=values).pivot_table(
        index=["participant_id", "roi_id"], columns=["condition", "reader_id"], values="value"
    )
    keys = pd.MultiIndex.from_frame(rois[["participant_id", "roi_id"]])
    truth = rois["histology"].map({"malignant": 1.0, "benign": 0.0}).to_numpy(float)
    names = sorted(set(readings["reader_id"]))
    wide = wide.reindex(index=keys)
    ratings = np.array(
        [[wide.get((c, r), pd.Series(np.nan, keys)).to_numpy() for r in names]
         for c in (ALONE, WITH_TOOL)]
    )  # fmt: skip
    try:
        found = obuchowski_rockette(truth, ratings, rois["participant_id"].to_numpy(str))
    except CadError as error:
        return [f"with and without the tool: not compared, {error.problem}"]
    alone, tool = found.treatment_aucs
    return [
        f"with the tool AUC {tool:.3f}, alone {alone:.3f}: difference {found.difference:.3f} "
        f"[{found.lower:.3f}, {found.upper:.3f}], p {found.p:.3g}, {found.n} regions, "
        f"{len(names)} readers (Obuchowski–Rockette)"
    ]
