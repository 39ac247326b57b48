"""Remove what identifies patients: keys replace UIDs, and errors are reported without values.

A key is a pseudonym, made from a UID and the node's secret. Only two folders of a node tell who a
patient is: ``incoming/`` has the received files, and ``studies/`` has the cohorts made of them and
the full texts of errors. Queue, log, metrics and status page identify a study by its key. They show
an error by its place in the code and by the words that the program has there. ``…`` stands for
values in these words, because values may come from a patient's file.
"""

import ast
import errno
import hashlib
import hmac
import importlib.util
import os
import re
import secrets
import traceback
from functools import cache
from pathlib import Path

from cad.base.errors import CadError
from cad.base.files import write_atomic
from cad.base.reading import MAX_YAML, read_bytes
from cad.folders.cohort.patients import SECRET

KEY_FILE = "node.key"
REASON_FILE = "reason.txt"
_HEX = 16
KEY = "[0-9a-f]" * _HEX
"""Pattern of a key: as a regular expression, and as SQL's GLOB."""
_STATUS = "0x…"
_MOST_SECRET = 2**10  # bytes; a larger file is no secret
_PACKAGE = Path(__file__).parents[2]


def node_key(home: Path) -> bytes:
    """Return the node's secret, from which pseudonyms are made; write one if there is none.

    Parameters
    ----------
    home : Path
        The node's folder.

    Raises
    ------
    CadError
        When the file of the secret does not have the form in which this function writes it.
    """
    path = home / KEY_FILE
    if not path.is_file():
        write_atomic(path, secrets.token_hex(16).encode(), mode=0o600)
    secret = read_bytes(path, _MOST_SECRET)
    if not SECRET.fullmatch(secret):
        problem = f"{len(secret)} bytes that are no node's secret: it is 32 digits of 0-9 and a-f"
        raise CadError(problem, file=path, hint="bring the file back from a backup")
    return secret


def key_of(secret: bytes, name: str) -> str:
    """Return the pseudonym of a UID or file name, to use in file names, queue, log and pages.

    Parameters
    ----------
    secret : bytes
        The node's secret (:func:`node_key`).
    name : str
        The UID or file name to hide.
    """
    return hmac.new(secret, os.fsencode(name), hashlib.sha256).hexdigest()[:_HEX]


def is_key(name: str) -> bool:
    """Tell whether a name has the form of a key (:func:`key_of`)."""
    return re.fullmatch(KEY, name) is not None


def study_folder(home: Path, section: str, key: str) -> Path:
    """Return the folder of a study: ``home/section/key``.

    Parameters
    ----------
    home : Path
        The node's folder.
    section : str
        ``incoming`` or ``studies``.
    key : str
        The pseudonym of the study's StudyInstanceUID.

    Raises
    ------
    CadError
        When ``key`` is no key: an empty text or a path would lead to the folders of other studies.
    """
    if not is_key(key):
        raise CadError(f"{key!r} is no study's key: that is {_HEX} digits of 0-9 and a-f")
    return home / section / key


def wording(error: BaseException) -> dict[str, str]:
    """Return what may be told of an error in the log and the queue, because it names no patient.

    Parameters
    ----------
    error : BaseException
        The error, whose message may quote a DICOM header.

    Returns
    -------
    dict of str to str
        ``code``: the line of the program that raised it (``module:line``), or the system's name of
        the error; ``reason`` and ``hint``: the program's own words there, without any value.
    """
    if isinstance(error, CadError):
        problem, hint = _words_of_error(error.place)
        code = error.place
        reason = _with_status_code(problem, error.problem)
        return {"code": code, "reason": reason, "hint": _with_status_code(hint, error.hint)}
    if isinstance(error, OSError) and error.errno:
        code = errno.errorcode.get(error.errno, "OSError")
        return {"code": code, "reason": os.strerror(error.errno), "hint": ""}
    # Another error is no message for users. Its code names the last line of this program.
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(_PACKAGE))]
    place = f" {Path(ours[-1].filename).stem}:{ours[-1].lineno}" if ours else ""
    code = type(error).__name__ + place
    return {"code": code, "reason": "a fault of the program", "hint": "report the code"}


@cache
def _words_of_error(place: str) -> tuple[str, str]:
    """Return message and hint of the error that is raised at a place in the code, without values.

    The words are read from the program's own source.
    """
    module, _, line = place.rpartition(":")
    for call in _calls(module):  # if a line has several calls, its outermost call comes first
        name = ast.unparse(call.func).rpartition(".")[2]
        # Classes of errors begin with a capital. ``kind`` is the name of a variable that holds one.
        is_error = name[:1].isupper() or name == "kind"
        if call.lineno == int(line) and is_error:
            hint = ""
            for keyword in call.keywords:
                if keyword.arg == "hint":
                    hint = _constant_text(keyword.value)
            return _constant_text(call.args[0]), hint
    return "…", ""  # the line has no such call: nothing may be told


@cache
def _calls(module: str) -> list[ast.Call]:
    """Return the calls with arguments in a module's source; none if it cannot be read."""
    try:
        spec = importlib.util.find_spec(module)
        # Without a module, the path is "None", and reading it raises an error.
        source_file = Path(str(spec and spec.origin))
        tree = ast.parse(read_bytes(source_file, MAX_YAML))
    except (CadError, ImportError, OSError, SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]


def _constant_text(node: ast.expr) -> str:
    """Return the text of an expression, with ``…`` for everything that is not constant.

    A DICOM status code, which the program formats as four hexadecimal digits, becomes ``0x…``. Such
    a code names no patient, so that :func:`_with_status_code` may insert it again.
    """
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_constant_text(value) for value in node.values)
    if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
        return _STATUS if _constant_text(node.format_spec) == "#06x" else "…"
    return "…"


def _with_status_code(words: str, sentence: str) -> str:
    """Return ``words`` with each ``0x…`` replaced by the DICOM status code in ``sentence``."""
    if _STATUS not in words:
        return words
    # The sentence is the same text with all values. Its codes are found at the places of the marks.
    pattern = re.escape(words).replace(_STATUS, "(0x[0-9a-f]{4})").replace("…", ".*?")
    match = re.match(pattern, sentence, flags=re.DOTALL)
    if match is None:
        return words
    for status in match.groups():
        words = words.replace(_STATUS, status, 1)
    return words
