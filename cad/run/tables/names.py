"""Find the role that the name of a column suggests: histology, reader, patient, site or id."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote


@dataclass(frozen=True)
class Kind:
    """Say which names of columns suggest one role, such as the patient.

    Parameters
    ----------
    title : str
        The role in the words of a message.
    option : str
        The option that declares the role.
    names : tuple of str
        Names reduced to their letters, in lower case: ``patientid`` for ``Patient_ID2``.
    words : tuple of str
        Words that suggest the role wherever they occur in a name.
    """

    title: str
    option: str
    names: tuple[str, ...]
    words: tuple[str, ...] = ()


KINDS = (
    Kind(
        "histology or an outcome",
        "--histology",
        (
            "histology",
            "histo",
            "histopathology",
            "pathology",
            "isup",
            "gleason",
            "ggg",
            "malignant",
            "malignancy",
            "cancer",
            "cspca",
            "pca",
            "clinsig",
            "biopsy",
            "outcome",
            "diagnosis",
            "label",
            "target",
            "truth",
            "groundtruth",
            "gt",
            "class",
            "y",
            "response",
            "recurrence",
            "metastasis",
            "survival",
            "death",
        ),
        (
            "histology",
            "histopathology",
            "isup",
            "gleason",
            "malignant",
            "malignancy",
            "diagnosis",
            "outcome",
            "event",
            "survival",
            "recurrence",
        ),
    ),
    Kind(
        "a reader's scores",
        "--scores",
        (
            "reader",
            "rater",
            "radiologist",
            "observer",
            "expert",
            "annotator",
            "likert",
            "pirads",
            "score",
            "suspicion",
            "rating",
            "r",
            "rad",
            "consensus",
            "birads",
        ),
        ("likert", "pirads", "reader", "radiologist", "rater"),
    ),
    Kind(
        "the patient",
        "--patient",
        (
            "patient",
            "patientid",
            "participant",
            "participantid",
            "subject",
            "subjectid",
            "pid",
            "mrn",
            "pat",
            "person",
            "caseid",
        ),
    ),
    Kind(
        "the site",
        "--site",
        (
            "site",
            "siteid",
            "hospital",
            "institution",
            "center",
            "centre",
            "scanner",
            "vendor",
            "manufacturer",
        ),
    ),
    Kind(
        "an id",
        "--id",
        (
            "id",
            "roi",
            "roiid",
            "region",
            "regionid",
            "lesion",
            "lesionid",
            "study",
            "studyid",
            "session",
            "sessionid",
            "uid",
            "index",
            "row",
            "rowid",
            "unnamed",
            "number",
            "no",
            "fold",
            "split",
            "group",
            "date",
            "visitdate",
            "studydate",
            "scandate",
            "accession",
        ),
    ),
)
"""Roles in the order in which a name is compared with them."""


LISTS = ("--scores", "--ignore", "--features")
"""Options that take several columns, with commas between them."""


def role_of_name(name: str) -> Kind | None:
    """Return the role that a column's name suggests; None where the name suggests no role.

    Parameters
    ----------
    name : str
        Name of the column.

    Examples
    --------
    >>> [kind.option for kind in map(role_of_name, ["Reader2", "ISUP_biopsy", "patientID"]) if kind]
    ['--scores', '--histology', '--patient']
    >>> role_of_name("original_glcm_Id") is None
    True
    """
    # A capital after a small letter or digit begins a word, as in patientId.
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = []
    for word in re.split(r"[^A-Za-z]+", spaced):
        if word:
            words.append(word.lower())
    letters = "".join(words)
    for kind in KINDS:
        if letters in kind.names or any(word in kind.words for word in words):
            return kind
    return None


def looks_like(names: Sequence[str], option: str) -> str | None:
    """Return the first of some columns whose name suggests that it belongs after an option.

    For example, a column ``patient_id`` belongs after ``--patient``. None if there is no such
    column.
    """
    for name in names:
        kind = role_of_name(name)
        if kind is not None and kind.option == option:
            return name
    return None


def as_typed(name: str) -> str:
    """Return a column's name as a user types it in a list of columns on the command line.

    Parameters
    ----------
    name : str
        The column. In such a list a comma ends a name, so a name with a comma is quoted.

    Examples
    --------
    >>> print(as_typed("adc"), as_typed("sex, coded"))
    adc '"sex, coded"'
    """
    # The list is read as a row of a CSV: a name with a comma is in quotes, and a quote is doubled.
    # ``quote`` then protects the whole from the shell.
    if "," in name or '"' in name:
        doubled = name.replace('"', '""')
        return quote(f'"{doubled}"')
    return quote(name)
