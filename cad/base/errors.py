"""Define the exception that users see: what is wrong, by which rule, where, and what to do.

:func:`printable` makes text of others safe in a message.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def printable(text: str, limit: int | None = 64) -> str:
    """Return text of others that is safe in a message: cut, and control characters become ``?``.

    Parameters
    ----------
    text : str
        Text from a header, a file, a table or an exception.
    limit : int or None
        Largest number of characters that is returned; None for all.

    Examples
    --------
    >>> printable("a\\x1b[31m")
    'a?[31m'
    """
    characters = []
    for character in text[:limit]:
        characters.append(character if character.isprintable() else "?")
    return "".join(characters)


class CadError(Exception):
    """Report a problem with an input, a setting or a result that the user can act on.

    Parameters
    ----------
    problem : str
        The found value and the rule that it broke, in one sentence.
    hint : str, optional
        How the user can solve the problem.
    file, patient, roi : str, optional
        Path of the file, id of the patient and id of the region that the problem concerns.

    Attributes
    ----------
    place : str
        ``module:line`` of the code that raised the error. Unlike the message, it holds no value of
        a patient, so it can be sent to others.
    """

    def __init__(
        self,
        problem: str,
        *,
        hint: str = "",
        file: object = "",
        patient: object = "",
        roi: object = "",
    ) -> None:
        self.problem = problem
        self.hint = hint
        self.file = str(file)
        self.patient = str(patient)
        self.roi = str(roi)
        frame = sys._getframe(1)  # the code that raises the error
        self.place = f"{frame.f_globals.get('__name__', '')}:{frame.f_lineno}"
        super().__init__(problem)

    def __str__(self) -> str:
        places = []
        for name, value in (("patient", self.patient), ("ROI", self.roi), ("file", self.file)):
            if value:
                places.append(f"{name} {value}")
        text = self.problem
        if places:
            text = f"{', '.join(places)}: {text}"
        if self.hint:
            text = f"{text} ({self.hint})"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Errors are sent between processes by pickling. Python's default pickling of an exception
        # loses keyword-only arguments.
        fields = (self.problem, self.hint, self.file, self.patient, self.roi, self.place)
        return (_rebuild, (type(self), *fields))

    def naming(self, *, file: object = "", patient: object = "", roi: object = "") -> CadError:
        """Return a copy of the error with a file, patient and region.

        A value is used only where the error does not have this value yet.

        Parameters
        ----------
        file, patient, roi : object
            Path of the file, id of the patient and id of the region; empty for unknown.
        """
        return _rebuild(
            type(self),
            self.problem,
            self.hint,
            file=str(self.file or file),
            patient=str(self.patient or patient),
            roi=str(self.roi or roi),
            place=self.place,
        )

    def with_path(self, path: object, shown: object) -> CadError:
        """Return a copy of the error in which a path that the user cannot see is replaced by
        another.

        Parameters
        ----------
        path, shown : object
            ``path`` is the path as it stands in the error's file, problem or hint, such as a
            temporary folder. ``shown`` takes its place.
        """
        problem = self.problem.replace(str(path), str(shown))
        hint = self.hint.replace(str(path), str(shown))
        file = self.file.replace(str(path), str(shown))
        return _rebuild(type(self), problem, hint, file, self.patient, self.roi, self.place)


@contextmanager
def located(*, file: object = "", patient: object = "", roi: object = "") -> Iterator[None]:
    """Add a file, patient and region to every CadError that is raised inside a ``with`` block.

    A value is used only where the error does not have this value yet.

    Parameters
    ----------
    file, patient, roi : object
        Path of the file, id of the patient and id of the region; empty for unknown.
    """
    try:
        yield
    except CadError as error:
        # The cause of the new error is the cause of the old one, not the old error itself.
        raise error.naming(file=file, patient=patient, roi=roi) from error.__cause__


class MachineError(CadError):
    """Say that the machine lacks something, such as disk or memory; the input is not to blame."""


# Errors which mean that the machine lacks disk, files or memory.
_SHORT = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def refused(error: OSError) -> CadError:
    """Turn an error of the operating system into a CadError that names the file.

    Parameters
    ----------
    error : OSError
        The error as it was caught.

    Returns
    -------
    CadError
        The error; it is a :class:`MachineError` where disk or memory ran short.
    """
    error_class = MachineError if error.errno in _SHORT else CadError
    return error_class(str(error.strerror or error), file=error.filename or "")


def install(extra: str) -> str:
    """Return the commands that install optional packages, as text for the hint of an error.

    Parameters
    ----------
    extra : str
        Name of the extra of the distribution ``prostate-cad``, such as ``dicomweb``.
    """
    return f"pip install 'prostate-cad[{extra}]', or in a checkout uv sync --extra {extra}"


def _rebuild(
    kind: type[CadError], problem: str, hint: str, file: str, patient: str, roi: str, place: str
) -> CadError:
    """Return an error with the ``place`` of the error that it replaces."""
    error = kind(problem, hint=hint, file=file, patient=patient, roi=roi)
    error.place = place
    return error
