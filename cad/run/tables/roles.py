"""Give every column of a table its role, by the options of the user.

The role says what the column is. Options name the columns of histology, of readers' scores, of the
patient, the site and the region's id, and the columns to leave out. All other columns are features.
:mod:`cad.run.tables.doubts` raises an error where the name or the values of a feature suggest that
it is something else.
"""

import difflib
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field
from shlex import quote

from cad.base.errors import CadError
from cad.learning.labels.scales import SCALES
from cad.run.tables.names import LISTS, as_typed, looks_like

PYRADIOMICS_FEATURES = (
    "original_*",
    "wavelet*",
    "log-sigma-*",
    "square_*",
    "squareroot_*",
    "logarithm_*",
    "exponential_*",
    "gradient_*",
    "lbp-*",
)
"""Patterns of pyradiomics' names of columns, which begin with the image that was measured."""
PRESETS = ("pyradiomics",)
_LISTED = 12


@dataclass(frozen=True)
class Columns:
    """Name the columns of a table that are no features; all other columns are features.

    Where several columns can be named, a name may contain the wildcards ``*``, ``?`` and ``[...]``.

    Parameters
    ----------
    patient : str
        Column with the patient of every row.
    scores : tuple of str
        Columns with scores, one for each reader. If ``reader`` is given, there is one column with
        the scores of all readers.
    scale : str
        Scale of all scores: ``likert5``, ``likert01``, ``percent`` or ``pirads``.
    histology : str or None
        Column with histology or another outcome of two classes. If ``isup_min`` is given, the
        column has the ISUP grade.
    isup_min : int or None
        Lowest ISUP grade that counts as malignant.
    ignored : tuple of str
        Columns that are neither features nor labels.
    site : str or None
        Column with the site of the patient.
    id : str or None
        Column that tells the regions of one patient apart.
    reader : str or None
        Column with the reader, where a row is one reading and not one region.
    features : tuple of str
        Columns that are features, whatever their names or values suggest.
    missing : tuple of str
        Further texts, such as ``-999``, that stand for a missing value.
    preset : str or None
        Name of the program that wrote the features. If it is given, only columns with names as this
        program writes them are features.

    Examples
    --------
    >>> columns = Columns("patient", ("r*",), histology="isup", isup_min=2, ignored=("note",))
    >>> roles = assign_roles(["patient", "r1", "r2", "isup", "note", "adc"], columns)
    >>> roles.scores, roles.features
    (('r1', 'r2'), ('adc',))
    """

    patient: str = "participant_id"
    scores: tuple[str, ...] = ()
    scale: str = "likert5"
    histology: str | None = None
    isup_min: int | None = None
    ignored: tuple[str, ...] = ()
    site: str | None = None
    id: str | None = None
    reader: str | None = None
    features: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    preset: str | None = None


@dataclass(frozen=True)
class Roles:
    """Hold the names of a table's columns, sorted by their role.

    Parameters
    ----------
    patient : str
        Column of the patient.
    features : tuple of str
        Feature columns, in the table's order.
    scores : tuple of str
        Columns of readers' scores.
    histology, site, id, reader : str or None
        Columns of histology, the site, the region's id and the reader; None where the table has no
        such column.
    ignored : tuple of str
        Columns that are left out because the user named them.
    beyond : tuple of str
        Columns that are left out because the program of ``Columns.preset`` does not write such
        names.
    trusted : tuple of str
        Features that the user named as features (``Columns.features``). It is not checked whether
        they are something else.
    """

    patient: str
    features: tuple[str, ...]
    scores: tuple[str, ...] = ()
    histology: str | None = None
    site: str | None = None
    id: str | None = None
    reader: str | None = None
    ignored: tuple[str, ...] = ()
    beyond: tuple[str, ...] = field(default=())
    trusted: tuple[str, ...] = field(default=())


def assign_roles(names: Sequence[str], columns: Columns) -> Roles:
    """Give every column of a table its role.

    Parameters
    ----------
    names : sequence of str
        The table's columns, in order.
    columns : Columns
        The roles that the user declared.

    Returns
    -------
    Roles
        Names of the table's columns by their role. Columns without a role that the user declared
        are features, unless a preset leaves them out.

    Raises
    ------
    CadError
        For a name or wildcard that fits no column, for a column with two roles, for options that do
        not fit together, and for a table without a feature.
    """
    _check_options(columns)
    patient = _single(names, columns.patient, "--patient")
    histology = _single(names, columns.histology, "--histology") if columns.histology else None
    site = _single(names, columns.site, "--site") if columns.site else None
    region = _single(names, columns.id, "--id") if columns.id else None
    reader = _single(names, columns.reader, "--reader") if columns.reader else None
    scores = _several(names, columns.scores, "--scores")
    if reader is not None:
        _check_one_score(reader, scores)

    # The columns that each option names, and the option that names each column.
    members_of = {
        "--patient": (patient,),
        "--histology": (histology,) if histology else (),
        "--site": (site,) if site else (),
        "--id": (region,) if region else (),
        "--reader": (reader,) if reader else (),
        "--scores": scores,
    }
    option_of = _option_of_columns(members_of)
    trusted = _several(names, columns.features, "--features", taken=option_of)
    ignored = _several(names, columns.ignored, "--ignore", taken=option_of)
    _check_features_not_ignored(columns, trusted, ignored)

    # All other columns are features, or, with a preset, those called as it calls features.
    features = []
    beyond = []  # columns that are neither features of the preset nor anything else
    for name in names:
        if name in option_of or name in ignored:
            continue
        if columns.preset != "pyradiomics" or name in trusted or _of_pyradiomics(name):
            features.append(name)
        else:
            beyond.append(name)
    if not features:
        raise _no_feature(names, columns, members_of, ignored, tuple(beyond))
    return Roles(
        patient=patient,
        features=tuple(features),
        scores=scores,
        histology=histology,
        site=site,
        id=region,
        reader=reader,
        ignored=ignored,
        beyond=tuple(beyond),
        trusted=trusted,
    )


def _check_options(columns: Columns) -> None:
    """Refuse options with unknown values, and options that need another one which is missing."""
    if columns.preset is not None and columns.preset not in PRESETS:
        raise CadError(
            f"--preset {columns.preset!r} is not known",
            hint=f"known: {', '.join(PRESETS)}; without --preset, every column that no option "
            "names is a feature",
        )
    if columns.scale not in SCALES:
        closest = difflib.get_close_matches(columns.scale, SCALES, n=1)
        meant = f"did you mean --scale {closest[0]}? " if closest else ""
        raise CadError(
            f"--scale {columns.scale!r} is not known", hint=f"{meant}known: {', '.join(SCALES)}"
        )
    if columns.isup_min is not None and not columns.histology:
        raise CadError(
            f"--isup-min {columns.isup_min} says from which grade on histology is malignant, and "
            "no --histology names the column of the grade",
            hint="add --histology COLUMN, or leave --isup-min out",
        )
    # Only a scale that differs from the default has been stated for certain.
    if columns.scale != Columns.scale and not columns.scores:
        raise CadError(
            f"--scale {columns.scale} is the scale of the readers' scores, and no --scores names a "
            "column of scores",
            hint="add --scores r1,r2, or leave --scale out",
        )


def _check_one_score(reader: str, scores: tuple[str, ...]) -> None:
    """Refuse a column of readers unless the table has exactly one column of scores."""
    if len(scores) != 1:
        raise CadError(
            f"--reader {quote(reader)} says that a row is one reading, with one score, and "
            f"--scores names {len(scores)} columns{_list_of_names(scores)}",
            hint="name the one column of scores, --scores COLUMN; or leave --reader out where "
            "every reader has a column",
        )


def _option_of_columns(members_of: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the option that names each column, and refuse a column that two options name."""
    option_of: dict[str, str] = {}
    for option, members in members_of.items():
        for name in members:
            if name in option_of:
                earlier = option_of[name]
                raise CadError(
                    f"{earlier} {','.join(members_of[earlier])} and "
                    f"{option} {','.join(members)} both name the column {name!r}, and a column has "
                    "one role",
                    hint=f"take {as_typed(name)} out of {earlier} or out of {option}",
                )
            option_of[name] = option
    return option_of


def _check_features_not_ignored(
    columns: Columns, trusted: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    """Refuse a column that is named both as a feature and as one to leave out."""
    both = [name for name in trusted if name in ignored]
    if both:
        taken_by = as_typed(_naming(both[0], columns.features))
        ignored_by = as_typed(_naming(both[0], columns.ignored))
        raise CadError(
            f"column {both[0]!r} is taken in by --features {taken_by} and left out by --ignore "
            f"{ignored_by}, and a column is either a feature or none",
            hint=f"take {both[0]!r} out of one of the two; a wildcard that takes too much is "
            "written as a list of columns",
        )


def _no_feature(
    names: Sequence[str],
    columns: Columns,
    members_of: dict[str, tuple[str, ...]],
    ignored: tuple[str, ...],
    beyond: tuple[str, ...],
) -> CadError:
    """Return the error for a table in which no column is left as a feature."""
    if beyond:
        return CadError(
            f"--preset {columns.preset}: no column is called as those of "
            f"{columns.preset} (left are{_list_of_names(beyond).removeprefix(':')}), which begin "
            f"with {', '.join(PYRADIOMICS_FEATURES)}",
            hint="take --preset out, or name the features with --features",
        )
    uses = []
    for option, members in members_of.items():
        if members:
            uses.append(f"{option} {', '.join(members)}")
    if ignored:
        uses.append(f"--ignore {_list_of_names(ignored).removeprefix(': ')}")
    return CadError(
        f"none of the {len(names)} columns is left as a feature, and learning takes one at "
        f"least: {'; '.join(uses)}",
        hint="name fewer columns by --ignore, or give a table with columns of features",
    )


def _of_pyradiomics(name: str) -> bool:
    """Tell whether a column is called as pyradiomics calls a feature."""
    if name.startswith("diagnostics"):  # versions and settings of pyradiomics are no features
        return False
    # The name of an image may precede the name by pyradiomics, as in ADC_original_firstorder_Mean.
    for pattern in PYRADIOMICS_FEATURES:
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*_{pattern}"):
            return True
    return False


def _list_of_names(names: Sequence[str]) -> str:
    """Return a colon and names for a message, at most :data:`_LISTED`; empty without names."""
    if not names:
        return ""
    further = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f": {', '.join(names[:_LISTED])}{further}"


def _naming(name: str, patterns: Sequence[str]) -> str:
    """Return the first of an option's texts that names a column: its name, or a wildcard."""
    for pattern in patterns:
        if pattern == name or fnmatch.fnmatch(name, pattern):
            return pattern
    raise ValueError(f"no text of the option names the column {name!r}")


def _single(names: Sequence[str], name: str, option: str) -> str:
    if name in names:
        return name
    raise _absent(names, name, option)


def _several(
    names: Sequence[str],
    patterns: Sequence[str],
    option: str,
    taken: dict[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the columns that names and wildcards stand for, in the given order.

    ``taken`` has the columns that have a role already, with the option that names them. A wildcard
    does not match them.
    """
    matched: list[str] = []
    for pattern in patterns:
        if pattern in names:
            if pattern in matched:
                words = ",".join(patterns)
                raise CadError(
                    f"{option} {words} names the column {pattern!r} twice, and a reader who counts "
                    "twice outweighs the others",
                    hint=f"{option} {','.join(dict.fromkeys(patterns))}",
                )
            if taken and pattern in taken:
                raise CadError(
                    f"{taken[pattern]} and {option} both name the column {pattern!r}, and a column "
                    "has one role",
                    hint=f"take {as_typed(pattern)} out of {taken[pattern]} or out of {option}",
                )
            matched.append(pattern)
            continue

        # The text is no column's name, so it must be a wildcard that fits some.
        is_wildcard = any(sign in pattern for sign in "*?[")
        fitting = fnmatch.filter(names, pattern) if is_wildcard else []
        if not fitting:
            raise _absent(names, pattern, option)
        matched += [name for name in fitting if name not in matched and name not in (taken or {})]
    return tuple(matched)


def _absent(names: Sequence[str], name: str, option: str) -> CadError:
    """Return the error for a name or wildcard of an option that fits no column, with advice."""
    # The column that may be meant: one that begins so, one that is spelled alike, or else one
    # whose name suggests this option.
    closest = []
    for column in names:
        if column.lower().startswith(name.lower()):
            closest.append(column.lower())
    if not closest:
        closest = difflib.get_close_matches(name.lower(), [column.lower() for column in names], n=1)
    meant = looks_like(names, option)
    if closest:
        meant = next(column for column in names if column.lower() == closest[0])

    columns = f"the table has the columns{_list_of_names(names).removeprefix(':')}"
    if len(names) == 1:  # the file was probably read with a wrong separator
        columns = f"the table has one column, {names[0]}: where it has more, say what separates "
        columns += "them, for example --separator semicolon; blanks alone separate nothing"
        meant = None
    hint = f"write {option} with the name of a column: {columns}"
    if meant is not None:
        word = as_typed(meant) if option in LISTS else quote(meant)
        hint = f"did you mean {option} {word}? {columns}"
    problem = f"{option} {name!r}: the table has no column of that name"
    if any(sign in name for sign in "*?["):
        problem = f"{option} {name!r}: the wildcard fits no column, and a word that names nothing "
        problem += "is taken for a mistake"
        hint = f"take it out, or correct it: {columns}"
    return CadError(problem, hint=hint)
