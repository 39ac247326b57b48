"""Say what a sheet says in the reader's language: whole sentences from one catalogue."""

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
            raise CadError(
                f"no language {language!r}", hint=f"one of {', '.join(LANGUAGES)} is kept"
            )
        self.language = language

    def say(self, sentence: str, /, **values: str) -> str:
        """Return a sentence of the catalogue with its values.

        Parameters
        ----------
        sentence : str
            The sentence in English, a value's place as ``{name}``.
        **values : str
            The values, as they are printed.

        Raises
        ------
        KeyError
            For a sentence that the catalogue does not have in this language.
        """
        text = sentence if self.language == "en" else catalogue()[sentence][self.language]
        return text.format(**values)

    def count(self, number: int, one: str, several: str, /, **values: str) -> str:
        """Return the first sentence for one thing, else the second; each is in the catalogue.

        Parameters
        ----------
        number : int
            How many things the sentence speaks of.
        one, several : str
            The two sentences in English.
        **values : str
            Their values.
        """
        return self.say(one if number == 1 else several, **values)

    def again(self, stored: str) -> str:
        """Say a sentence that a table of the run holds in English.

        Parameters
        ----------
        stored : str
            The sentence with its values. One that the catalogue does not have, such as the message
            of a program, stays in English.
        """
        if self.language == "en":
            return stored
        for pattern, sentence in _patterns():
            match = pattern.fullmatch(stored)
            if match is not None:
                values = {name: self.again(value) for name, value in match.groupdict().items()}
                return self.say(sentence, **values)
        return stored


ENGLISH = Wording("en")


def places(sentence: str) -> set[str]:
    """Return the names of a sentence's values.

    Parameters
    ----------
    sentence : str
        A sentence of the catalogue.
    """
    return set(_PLACE.findall(sentence))


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Return every sentence: by its English text the text by language."""
    texts: dict[str, dict[str, str]] = {}
    for part in table_beside(__file__).values():
        texts.update(part)
    return texts


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return the stored sentences as patterns, those that say most first."""
    stored = sorted(table_beside(__file__)["stored"], key=len, reverse=True)
    patterns = []
    for sentence in stored:
        pieces = _PLACE.split(sentence)
        text = ""
        for number, piece in enumerate(pieces):
            text += f"(?P<{piece}>.+?)" if number % 2 else re.escape(piece)
        patterns.append((re.compile(text), sentence))
    return patterns
