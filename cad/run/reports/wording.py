"""Translate the sentences of pages and sheets, by a catalogue that holds each whole sentence."""

import re
from functools import cache
from typing import Literal, get_args

from cad.base.errors import CadError
from cad.base.terms.beside import table_beside

Language = Literal["en", "de", "fr"]
LANGUAGES: tuple[str, ...] = get_args(Language)
_PLACE = re.compile(r"\{(\w+)\}")


class Wording:
    """Say sentences in one language.

    Parameters
    ----------
    language : str
        ``en``, ``de`` or ``fr``.

    Examples
    --------
    >>> Wording("de").say("Region {region}", region="2")
    'Region 2'
    >>> Wording("fr").say("late")
    Traceback (most recent call last):
    ...
    KeyError: 'late'
    """

    def __init__(self, language: str = "en") -> None:
        if language not in LANGUAGES:
            raise CadError(f"no language {language!r}", hint=f"one of {', '.join(LANGUAGES)}")
        self.language = language

    def say(self, sentence: str, /, **values: str) -> str:
        """Return a sentence of the catalogue with its values.

        Parameters
        ----------
        sentence : str
            The sentence in English, with ``{name}`` in place of each value.
        **values : str
            The values, in the form in which they are printed.

        Raises
        ------
        KeyError
            When the catalogue lacks the sentence in this language.
        """
        text = sentence if self.language == "en" else catalogue()[sentence][self.language]
        return text.format(**values)

    def count(self, number: int, singular: str, plural: str, /, **values: str) -> str:
        """Return a sentence of the catalogue, in the singular for one thing, else in the plural.

        Parameters
        ----------
        number : int
            The number of things that the sentence is about.
        singular, plural : str
            The two sentences in English.
        **values : str
            The values that take the place of ``{name}`` in the sentence.
        """
        return self.say(singular if number == 1 else plural, **values)

    def again(self, stored: str) -> str:
        """Translate a sentence that a table of the run holds in English, with its values.

        Parameters
        ----------
        stored : str
            The sentence. A sentence that the catalogue lacks, such as an error message, stays in
            English.

        Returns
        -------
        str
            The sentence in the language of this object, or ``stored`` where the catalogue lacks the
            sentence.
        """
        if self.language == "en":
            return stored
        for pattern, sentence in _patterns():
            match = pattern.fullmatch(stored)
            if match is not None:
                # A value that is itself a sentence of the catalogue is translated, too.
                values = {name: self.again(value) for name, value in match.groupdict().items()}
                return self.say(sentence, **values)
        return stored


ENGLISH = Wording("en")


def places(sentence: str) -> set[str]:
    """Return the names of the values that are inserted into a sentence.

    Parameters
    ----------
    sentence : str
        A sentence of the catalogue.

    Examples
    --------
    >>> sorted(places("{low} to {high}%"))
    ['high', 'low']
    """
    return set(_PLACE.findall(sentence))


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Return the catalogue: for each English sentence its translations, by language."""
    texts: dict[str, dict[str, str]] = {}
    for section in table_beside(__file__).values():
        texts.update(section)
    return texts


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return the sentences that a run stores in its tables, each as (pattern, sentence).

    The sentence is the key of the :func:`catalogue`. It has places such as ``{name}``, where a
    stored text has names and numbers. The pattern matches a text with any words in these places.
    A text may match the pattern of a long sentence and that of a short one. The long sentence is
    then the better match, so the longest sentences come first.
    """
    stored = sorted(table_beside(__file__)["stored"], key=len, reverse=True)
    patterns = []
    for sentence in stored:
        # Text and names take turns: the pieces with odd numbers are the names of places.
        pieces = _PLACE.split(sentence)
        pattern = ""
        for number, piece in enumerate(pieces):
            is_name = number % 2 == 1
            pattern += f"(?P<{piece}>.+?)" if is_name else re.escape(piece)
        patterns.append((re.compile(pattern), sentence))
    return patterns
