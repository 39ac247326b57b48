"""Which column of a table is what: declared by the user, and by nobody else.

Truth, readers, patient, site, id and what is left out are named by options; all other columns are
features. What a column's name or content says against that is found by
:mod:`cad.run.tables.doubts`.
"""

import difflib
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field
from shlex import quote

from cad.base.errors import CadError
from cad.run.tables.names import looks_like

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
"""Names of the image that a feature was measured on, with which its column begins."""
PRESETS = ("pyradiomics",)
_LISTED = 12


@dataclass(frozen=True)
class Columns:
    """Name the columns of a table that are no features; all other columns are features.

    Wherever several columns may be named, a name may hold the wildcards ``*``, ``?`` and ``[...]``.

    Parameters
    ----------
    patient : str
        Column with the patient of every row.
    scores : tuple of str
        Columns with scores, one per reader; or, where ``reader`` is given, the one column that
        holds all scores.
    scale : str
        Scale of all scores: ``likert5``, ``likert01``, ``percent`` or ``pirads``.
    histology : str or None
        Column with histology or another outcome of two classes; if ``isup_min`` is given, with the
        ISUP grade.
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
        Columns that are features whatever their name or content seem to say.
    missing : tuple of str
        Further texts, such as ``-999``, that stand for a missing value.
    preset : str or None
        Name of the program that wrote the features; only its columns are features then.

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
    """Hold the names of a table's columns by what they are.

    Parameters
    ----------
    patient : str
        Column of the patient.
    features : tuple of str
        Feature columns, in the table's order.
    scores : tuple of str
        Columns of readers' scores.
    histology, site, id, reader : str or None
        As in :class:`Columns`.
    ignored : tuple of str
        Columns that are left out because the user said so.
    beyond : tuple of str
        Columns that are left out because a preset does not have them.
    trusted : tuple of str
        Features that the user declared as such.
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
        What the user declared.

    Raises
    ------
    CadError
        For a name or wildcard that no column has, a column with two roles, and a table without a
        feature.
    """
    if columns.preset is not None and columns.preset not in PRESETS:
        raise CadError(
            f"--preset {columns.preset!r} is not known", hint=f"known: {', '.join(PRESETS)}"
        )
    patient = _single(names, columns.patient, "--patient")
    histology = _single(names, columns.histology, "--histology") if columns.histology else None
    site = _single(names, columns.site, "--site") if columns.site else None
    region = _single(names, columns.id, "--id") if columns.id else None
    reader = _single(names, columns.reader, "--reader") if columns.reader else None
    scores = _several(names, columns.scores, "--scores")
    if reader is not None and len(scores) != 1:
        raise CadError(
            f"--reader {reader} says that a row is one reading, and --scores names {len(scores)} "
            "columns",
            hint="name the one column of scores, or leave --reader out",
        )
    roles = {
        "--patient": (patient,),
        "--histology": (histology,) if histology else (),
        "--site": (site,) if site else (),
        "--id": (region,) if region else (),
        "--reader": (reader,) if reader else (),
        "--scores": scores,
    }
    option_of: dict[str, str] = {}
    for option, members in roles.items():
        for name in members:
            if name in option_of:
                raise CadError(
                    f"column {name!r} is named by {option_of[name]} and by {option}",
                    hint="a column has one role: take it out of one of the two",
                )
            option_of[name] = option
    trusted = _several(names, columns.features, "--features", taken=option_of)
    ignored = _several(names, columns.ignored, "--ignore", taken=option_of)
    both = [name for name in trusted if name in ignored]
    if both:
        raise CadError(
            f"column {both[0]!r} is named by --features and by --ignore",
            hint="take it out of one of the two",
        )
    left = [name for name in names if name not in option_of and name not in ignored]
    features = tuple(left)
    beyond: tuple[str, ...] = ()
    if columns.preset == "pyradiomics":
        features = tuple(name for name in left if name in trusted or _of_pyradiomics(name))
        beyond = tuple(name for name in left if name not in features)
    if not features and beyond:
        raise CadError(
            f"no column is called as those of {columns.preset}, which begin with "
            f"{', '.join(PYRADIOMICS_FEATURES)}",
            hint="take --preset out, or name the features with --features",
        )
    if not features:
        raise CadError(
            f"no feature is left: each of the {len(names)} columns has another role or is left out",
            hint="name fewer columns by --ignore",
        )
    return Roles(
        patient, features, scores, histology, site, region, reader, ignored, beyond, trusted
    )


def _of_pyradiomics(name: str) -> bool:
    if name.startswith("diagnostics"):
        return False
    # The name of the image may stand before, as in ADC_original_firstorder_Mean.
    return any(
        fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*_{pattern}")
        for pattern in PYRADIOMICS_FEATURES
    )


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
    """Return the columns that names and wildcards stand for, in the order given.

    A wildcard passes by the columns of ``taken``, which have a role.
    """
    matched: list[str] = []
    for pattern in patterns:
        if pattern in names:
            if pattern in matched:
                raise CadError(
                    f"column {pattern!r} is named twice by {option}",
                    hint="name every column once: a reader who counts twice outweighs the others",
                )
            if taken and pattern in taken:
                raise CadError(
                    f"column {pattern!r} is named by {taken[pattern]} and by {option}",
                    hint="a column has one role: take it out of one of the two",
                )
            matched.append(pattern)
            continue
        meant = fnmatch.filter(names, pattern) if any(c in pattern for c in "*?[") else []
        if not meant:
            raise _absent(names, pattern, option)
        matched += [name for name in meant if name not in matched and name not in (taken or {})]
    return tuple(matched)


def _absent(names: Sequence[str], name: str, option: str) -> CadError:
    listed = ", ".join(names[:_LISTED])
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    near = difflib.get_close_matches(name.lower(), [other.lower() for other in names], n=1)
    hint = f"the table has {listed}{more}"
    meant = looks_like(names, option)
    if near:
        meant = next(other for other in names if other.lower() == near[0])
    if meant is not None:
        hint = f"did you mean {option} {quote(meant)}? {hint}"
    else:
        hint = f"name the right one with {option}: {hint}"
    problem = f"no column {name!r}, which {option} names"
    if any(c in name for c in "*?["):
        problem = f"no column fits {name!r}, which {option} names"
    return CadError(problem, hint=hint)
