"""Collect the files that readers exported from their pages into the cohort's scores; check them."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from cad.base.errors import CadError
from cad.base.files import CONTROL, JsonObject, as_given, each_cell, harmless, write_atomic
from cad.base.reading import (
    MAX_JSON,
    parse_json,
    read_bytes,
    read_frame,
    read_json,
    reading,
    table_text,
)
from cad.base.settings import LabelSettings
from cad.base.transactions import commit, owned, stage
from cad.folders.cohort import MISSING, read_cohort
from cad.hospital.reader_study.outlines import AGAIN, is_placed, outline_maps
from cad.hospital.reader_study.study import ALONE, FORMAT, KEY, NOTE, WITH_TOOL
from cad.learning.evaluation.readers.mrmc import obuchowski_rockette
from cad.learning.labels.consensus import malignant
from cad.learning.labels.scales import check_score, score_probability
from cad.mri.imaging.nifti import write_volume
from cad.mri.imaging.volume import Volume

COLUMNS = [
    "participant_id",
    "roi_id",
    "reader_id",
    "session",
    "condition",
    "scale",
    "score",
    "milliseconds",
    "note",
]
READINGS = "readings.tsv"
"""Name of the table with all collected readings, beside the key of the reader study."""
WHO = ["participant_id", "roi_id", "reader_id"]
SAME = COLUMNS[:7]
"""Columns in which two exports of one reading agree: all except time and note."""
_FIELDS = {
    "readings": (
        "a reading",
        "",
        {"case", "roi", "score", "condition", "milliseconds"},
        {"note"},
    ),
    "outlines": (
        "an outline",
        "the outline of ",
        {"case", "roi", "image", "first", "shape", "runs"},
        set(),
    ),
}
"""Tables of a reader's export, by name. For each table:

- the word by which messages call an entry
- the words that messages put before the entry's case and region
- the fields that an entry must have
- the fields that an entry may have
"""
_LARGEST = 1e12  # no page writes a larger number: of milliseconds it would be 30 years


def collect_reading(root: Path, folder: Path, paths: Sequence[Path]) -> list[str]:
    """Add the files that readers exported to ``scores.tsv`` of the cohort and to ``readings.tsv``.

    ``readings.tsv`` lies in the reader study's folder and keeps every reading, also earlier ones.
    ``scores.tsv`` gets the readings that were made without the tool (the model's probability was
    not shown). In ``scores.tsv`` a score that was ``n/a`` is filled in, and new lines follow in the
    order of ``rois.tsv``. All other lines stay as they are. If a reading was exported with two
    different scores, both go to ``readings.tsv`` and none to ``scores.tsv``. A line of the result
    then says so.

    Corrected outlines become label maps ``masks/<study>_desc-<reader>_rois.nii.gz``.

    Parameters
    ----------
    root : Path
        Cohort folder.
    folder : Path
        Folder of the reader study, which ``cad reading`` wrote, with ``reading.json``.
    paths : sequence of Path
        Exports, ``<reader>-session-<n>.jsonl``.

    Returns
    -------
    list of str
        Lines for the user: what is collected, missing and contradictory, and the comparison with
        and without the tool.

    Raises
    ------
    CadError
        Before anything is written. An export is refused if it was changed, is of another study,
        names an unknown reader, case or region, or has a score off its scale. An outline is refused
        as by :func:`cad.hospital.reader_study.outlines.outline_maps`.
    """
    key = _read_key(folder / KEY)
    exports = [read_export(path, key) for path in paths]
    rows: list[tuple[object, ...]] = []
    for export in exports:
        rows += _rows_of_export(export, key)
    new_readings = pd.DataFrame(rows, columns=COLUMNS)
    # Both folders are locked from the time when the scores are read until they are written.
    with owned(root), owned(folder):
        cohort = read_cohort(root)
        regions = cohort.rois[WHO[:2]].itertuples(index=False, name=None)
        row_of_region = {tuple(region): number for number, region in enumerate(regions)}
        for patient, roi in new_readings[WHO[:2]].itertuples(index=False, name=None):
            if (patient, roi) not in row_of_region:
                raise CadError(
                    "the region is not in the cohort any more",
                    file=root / "rois.tsv",
                    patient=patient,
                    roi=roi,
                )
        readings = joined(_collected_readings(folder / READINGS), new_readings)
        # Readings stand in the order of rois.tsv. An earlier reading may be of a region that was
        # removed since: it stands last.
        order = []
        for patient, roi in readings[WHO[:2]].to_numpy():
            order.append(row_of_region.get((patient, roi), len(row_of_region)))
        readings = (
            readings.assign(order=order)
            .sort_values(["reader_id", "session", "order"], kind="stable")
            .drop(columns="order")
        )
        contradicting = readings[contradictory(readings)]
        certain = readings.drop(contradicting.index).drop_duplicates(SAME)
        # Only readings of these exports are added to scores.tsv: it has the earlier ones already.
        scores_path = root / "scores.tsv"
        certain_new = certain.merge(new_readings[SAME].drop_duplicates())
        without_tool = certain_new[certain_new["condition"] == ALONE]
        text, against_table = merged(table_text(scores_path, "\t"), without_tool, scores_path)
        maps = outline_maps(cohort, list(zip(paths, exports, strict=True)), key)
        write_atomic(folder / READINGS, _tsv(readings).encode())
        _commit_readings(root, text, maps)
    drawn_lines = [f"corrected outlines: {name}" for name in maps]
    contradictions = [*_contradictions(contradicting), *against_table]
    progress = _progress_lines(readings, key)
    return [*progress, *drawn_lines, *contradictions, *_tool_comparison(certain, cohort.rois)]


def _collected_readings(path: Path) -> pd.DataFrame:
    """Return the readings in ``readings.tsv``; an empty table if the file does not exist yet."""
    if not path.is_file():
        return pd.DataFrame(columns=COLUMNS)
    with reading(path, "these are no collected readings", hint="move the file away"):
        table = read_frame(path, "\t", dtype=str, keep_default_na=False)
        return table[COLUMNS].astype({"session": int, "score": float, "milliseconds": int})


def joined(before: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Join two tables of readings, and drop repeated rows.

    Rows are of the same reading if they differ in nothing but ``milliseconds`` and ``note``. Rows
    with different scores are different readings, and all are kept. Of rows of one reading with the
    same note, the row with the longest time is kept. A row without a note is dropped if the same
    reading has a row with a note.

    Parameters
    ----------
    before, new : DataFrame
        Earlier readings, and new readings, one row each: ``participant_id, roi_id, reader_id,
        session, condition, scale, score, milliseconds, note``.

    Returns
    -------
    DataFrame
        The kept rows with the columns of the two tables, sorted by ``milliseconds``. The index is
        the number of the row in the joined table.
    """
    # Empty tables are left out, because pandas would mix the types of their columns into the types
    # of the filled table.
    filled_tables = [table for table in (before, new) if len(table)]
    both = pd.concat(filled_tables, ignore_index=True) if filled_tables else new
    both = both.sort_values("milliseconds", kind="stable")
    # The rows are sorted by time, so that the last one has the longest.
    both = both.drop_duplicates([*SAME, "note"], keep="last")
    has_note = both["note"] != MISSING
    is_only_row = ~both.duplicated(SAME, keep=False)
    return both[has_note | is_only_row]


def contradictory(readings: pd.DataFrame) -> pd.Series:
    """Mark the readings of one reader, region and session that have different scores.

    Parameters
    ----------
    readings : DataFrame
        One row per reading: ``participant_id, roi_id, reader_id, session, score`` and others.

    Returns
    -------
    Series of bool
        For each row, with the index of ``readings``.
    """
    scores: pd.Series = readings.groupby([*WHO, "session"])["score"].transform("nunique")
    return scores > 1


def _contradictions(contradicting: pd.DataFrame) -> list[str]:
    """Return a note for every reading with two different scores: ``scores.tsv`` gets neither."""
    lines = []
    for (patient, roi, reader, session), rows in contradicting.groupby(
        [*WHO, "session"], sort=False
    ):
        scores = " and ".join(f"{score:g}" for score in rows["score"].unique())
        lines.append(
            f"contradictory: reader {reader}, session {session}, {patient} region {roi} has scores "
            f"{scores}: {READINGS} keeps both, scores.tsv stays as it was; two people need two "
            "reader ids"
        )
    return lines


def _commit_readings(root: Path, scores: str, maps: Mapping[str, Volume]) -> None:
    """Put scores and label maps into the cohort in one change: after an error it has neither."""
    with stage(root) as scratch:
        new_files = {"scores.tsv": scratch / "scores.tsv"}
        write_atomic(new_files["scores.tsv"], scores.encode())
        for number, (name, labels) in enumerate(maps.items()):
            new_files[name] = scratch / f"{number}.nii.gz"
            write_volume(new_files[name], labels)
        commit(root, new_files)


def read_export(path: Path, key: JsonObject) -> JsonObject:
    """Read one reader's export, check it against the reader study's key, and return its content.

    Parameters
    ----------
    path : Path
        The file that the page exported.
    key : dict
        Content of the reader study's ``reading.json``: its readers, sessions and cases.

    Returns
    -------
    dict
        The content of the export, as the page wrote it; its ``readings`` are a list.

    Raises
    ------
    CadError
        When the export was changed, is of another study, names an unknown reader, case or region,
        or has a score off its scale. When an outline is one that the study did not ask for, is of
        a case that showed the tool, or has voxels outside of what the page showed.
    """
    with reading(path, "no whole export", hint=AGAIN):
        content = _checked_content(path)
        if content.get("format") != FORMAT:
            raise CadError(f"not an export of {FORMAT!r}")
        if content.get("study") != key["study"]:
            raise CadError(
                f"the export is of reader study {content.get('study')}, this folder is "
                f"{key['study']}",
                hint="give the folder whose pages the reader used",
            )
        # The study's name is a hash of its settings, the scale among them. An export of this study
        # that states no scale is therefore on the study's scale.
        if content.get("scale", key["scale"]) != key["scale"]:
            raise CadError(f"the export is on another scale than {key['scale']}", hint=AGAIN)
        _require_readings(content, key)
        _require_outlines(content, key)
        return content


def _entries_of_session(
    content: JsonObject, key: JsonObject, table: str
) -> Iterator[tuple[JsonObject, str, str]]:
    """Yield each reading or outline of an export, after checking it against the session's plan.

    Parameters
    ----------
    content : dict
        Content of the export, which is of one session of one reader.
    key : dict
        The study's secret plan: the cases of each session, and the regions of each case.
    table : str
        ``readings`` or ``outlines``.

    Yields
    ------
    entry : dict
        The reading or outline.
    name : str
        Its case and region, for messages.
    condition : str
        How the session shows the case: alone, or with the tool.

    Raises
    ------
    CadError
        For an entry without its fields, of a case or region that is not the session's, or given
        twice.
    """
    reader = content.get("reader")
    number = content.get("session")
    conditions = {}  # by reader and session, how each case is shown
    for session in key["sessions"]:
        conditions[session["reader"], session["session"]] = dict(session["cases"])
    # The type is compared exactly, because in Python True equals 1 and would pass for session 1.
    if type(number) is not int or (reader, number) not in conditions:
        raise CadError(f"reader {reader}, session {number} is not in this study")
    condition_of_case = conditions[reader, number]
    title, prefix, fields, optional_fields = _FIELDS[table]
    entered_regions = set()
    for entry in content.get(table, []):
        if not isinstance(entry, dict) or set(entry) - optional_fields != fields:
            raise CadError(f"{title} has {', '.join(sorted(fields))}", hint=AGAIN)
        code = entry["case"]
        roi = entry["roi"]
        name = f"{code}, region {roi}"
        if code not in condition_of_case or roi not in key["cases"][code]["rois"]:
            raise CadError(f"{prefix}{name} is not in this session", hint=AGAIN)
        if (code, roi) in entered_regions:
            raise CadError(f"{prefix}{name} stands twice", hint=AGAIN)
        entered_regions.add((code, roi))
        yield entry, name, condition_of_case[code]


def _require_readings(content: JsonObject, key: JsonObject) -> None:
    """Check the readings of an export against the study's key."""
    for entry, name, condition in _entries_of_session(content, key, "readings"):
        if entry["condition"] != condition:
            raise CadError(f"{entry['case']} was planned {condition}", hint=AGAIN)
        for field in ("score", "milliseconds"):
            # The type is compared exactly, because True and False also are numbers in Python.
            is_number = type(entry[field]) in (int, float)
            if not is_number or not 0 <= entry[field] <= _LARGEST:
                raise CadError(f"{name}: {field} is no number that a page writes", hint=AGAIN)
        note = entry.get("note", "")
        if not isinstance(note, str) or len(note) > NOTE:
            raise CadError(f"{name}: the note is no text of {NOTE} characters at most", hint=AGAIN)
        check_score(key["scale"], float(entry["score"]))


def _require_outlines(content: JsonObject, key: JsonObject) -> None:
    """Check the outlines of an export against the study's key, before any image is read."""
    outlines = content.get("outlines", [])
    if not isinstance(outlines, list) or (outlines and not key.get("outlines")):
        raise CadError("this reader study asks for no outlines", hint=AGAIN)
    for outline, name, condition in _entries_of_session(content, key, "outlines"):
        if condition != ALONE:
            text = f"{outline['case']} showed the tool: its outlines are no opinion of the reader's"
            raise CadError(text, hint=AGAIN)
        if not is_placed(outline):
            text = f"the outline of {name} has voxels outside of what the page showed"
            raise CadError(text, hint=AGAIN)


def _checked_content(path: Path) -> JsonObject:
    """Return the content of an export, after checking its first line by the hash in the second."""
    lines = read_bytes(path, MAX_JSON).split(b"\n")
    content = parse_json(lines[0])
    proof = parse_json(lines[1])
    is_unchanged = proof["crc32"] == f"{zlib.crc32(lines[0]):08x}"
    has_readings = isinstance(content, dict) and isinstance(content.get("readings"), list)
    has_more_lines = any(line.strip() for line in lines[2:])
    if not is_unchanged or not has_readings or has_more_lines:
        raise CadError(
            "the export was changed after the page wrote it",
            hint=f"{AGAIN}; a correction is made there, or in scores.tsv after collecting",
        )
    return dict(content)


def _read_key(path: Path) -> JsonObject:
    """Return the content of a reader study's ``reading.json``."""
    try:
        content = read_json(path)
    except (CadError, OSError) as error:
        raise CadError("no reader study", file=path, hint="make one with cad reading") from error
    if content.get("format") != FORMAT:
        raise CadError(f"not a reader study of {FORMAT!r}", file=path)
    return content


def _rows_of_export(export: JsonObject, key: JsonObject) -> list[tuple[object, ...]]:
    """Return the rows of ``readings.tsv`` for the readings of an export."""
    reader = str(export["reader"])
    session = int(export["session"])
    rows: list[tuple[object, ...]] = []
    for answer in export["readings"]:
        # A note must fit into one cell of `readings.tsv`, without line breaks or other control
        # characters.
        note = " ".join(CONTROL.sub(" ", str(answer.get("note", ""))).split())
        rows.append(
            (
                key["cases"][answer["case"]]["participant_id"],
                str(answer["roi"]),
                reader,
                session,
                answer["condition"],
                key["scale"],
                float(answer["score"]),
                int(answer["milliseconds"]),
                note or MISSING,
            )
        )
    return rows


def merged(text: str, new: pd.DataFrame, path: Path) -> tuple[str, list[str]]:
    """Return the text of ``scores.tsv`` with readings added; its other lines stay unchanged.

    Parameters
    ----------
    text : str
        Content of ``scores.tsv`` so far.
    new : DataFrame
        Readings to add, one row each: ``participant_id, roi_id, reader_id, scale, score``.
    path : Path
        Path of ``scores.tsv``, only for messages.

    Returns
    -------
    text : str
        Content with the new readings.
    said : list of str
        A message for each reading that was not added, because the file has a different score of the
        same reader and region.
    """
    # The file keeps its ends of lines, those of Windows or of other systems.
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.rstrip("\r\n").replace("\r\n", "\n").split("\n")
    columns = lines[0].split("\t")
    index_of_column = {name: columns.index(name) for name in COLUMNS if name in columns}
    line_of_reading = {}
    for index, line in enumerate(lines[1:], start=1):
        cells = line.split("\t")
        if len(cells) != len(columns):
            raise CadError(f"line {index + 1} has {len(cells)} cells of {len(columns)}", file=path)
        reading_of_line = tuple(as_given(cells[index_of_column[column]]) for column in WHO)
        line_of_reading[reading_of_line] = index
    conflicts = []
    for row in new.itertuples(index=False):
        reading = (row.participant_id, row.roi_id, row.reader_id)
        values = {
            "participant_id": reading[0],
            "roi_id": harmless(reading[1]),
            "reader_id": harmless(reading[2]),
            "scale": row.scale,
            "score": f"{row.score:g}",
        }
        if reading not in line_of_reading:
            line_of_reading[reading] = len(lines)
            lines.append("\t".join(values.get(name, MISSING) for name in columns))
            continue
        cells = lines[line_of_reading[reading]].split("\t")
        earlier_score = cells[index_of_column["score"]]
        earlier_scale = cells[index_of_column["scale"]]
        if earlier_score in (MISSING, ""):  # the line waited for this score
            for name, value in values.items():
                cells[index_of_column[name]] = value
            lines[line_of_reading[reading]] = "\t".join(cells)
        elif earlier_scale != row.scale or float(earlier_score) != row.score:
            conflicts.append(
                f"contradictory: {path.name} has {earlier_scale} {earlier_score} by reader "
                f"{reading[2]} of {reading[0]} region {reading[1]} and keeps it, the export says "
                f"{row.scale} {row.score:g}"
            )
    return end.join([*lines, ""]), conflicts


def _tsv(readings: pd.DataFrame) -> str:
    """Return a table of readings as the text of ``readings.tsv``."""
    shown = readings.assign(score=[f"{score:g}" for score in readings["score"]])
    return str(each_cell(shown, harmless).to_csv(sep="\t", index=False, lineterminator="\n"))


def _progress_lines(readings: pd.DataFrame, key: JsonObject) -> list[str]:
    """Return a line for each session: how many of its regions the reader has scored."""
    # Two scores of one region count as one region.
    scored_regions = readings.drop_duplicates([*WHO, "session"])
    counts = scored_regions.value_counts(["reader_id", "session"])
    sessions = sorted(key["sessions"], key=lambda session: (session["reader"], session["session"]))
    lines = []
    for session in sessions:
        n_planned = sum(len(key["cases"][code]["rois"]) for code, _ in session["cases"])
        n_scored = int(counts.get((session["reader"], session["session"]), 0))
        state = "complete" if n_scored == n_planned else f"{n_planned - n_scored} missing"
        lines.append(
            f"reader {session['reader']}, session {session['session']}: {n_scored} of {n_planned} "
            f"regions, {state}"
        )
    return lines


def _tool_comparison(readings: pd.DataFrame, rois: pd.DataFrame) -> list[str]:
    """Return a comparison of the readers with and without the tool, if they read in both ways."""
    if set(readings["condition"]) != {ALONE, WITH_TOOL}:
        return []
    pairs = zip(readings["scale"], readings["score"], strict=True)
    values = [score_probability(scale, score) for scale, score in pairs]
    value_table = readings.assign(value=values).pivot_table(
        index=["participant_id", "roi_id"], columns=["condition", "reader_id"], values="value"
    )
    regions = pd.MultiIndex.from_frame(rois[["participant_id", "roi_id"]])
    truth = malignant(rois, LabelSettings().isup_min)
    readers = sorted(set(readings["reader_id"]))
    value_table = value_table.reindex(index=regions)
    columns = pd.MultiIndex.from_product([(ALONE, WITH_TOOL), readers])
    value_table = value_table.reindex(columns=columns)  # NaN where a reading is missing
    # The columns stand condition by condition: axes of the ratings are condition, reader, region.
    ratings = value_table.to_numpy().T.reshape(2, len(readers), len(regions))
    try:
        comparison = obuchowski_rockette(truth, ratings, rois["participant_id"].to_numpy(str))
    except CadError as error:
        return [f"with and without the tool: not compared, {error.problem}"]
    auc_alone, auc_with_tool = comparison.treatment_aucs
    return [
        f"with the tool AUC {auc_with_tool:.3f}, alone {auc_alone:.3f}: difference "
        f"{comparison.difference:.3f} [{comparison.lower:.3f}, {comparison.upper:.3f}], p "
        f"{comparison.p:.3g}, {comparison.n} regions, {len(readers)} readers (Obuchowski–Rockette)"
    ]
