"""The catalogue of the sheet: complete in every language, every value kept, nothing dead."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cad.base.errors import CadError
from cad.base.terms.beside import table_beside
from cad.base.terms.sectors import SECTOR_NAMES, WORDS
from cad.run.reports import wording
from cad.run.reports.wording import LANGUAGES, Wording, catalogue, places
from cad.run.stages import decide

OTHERS = [language for language in LANGUAGES if language != "en"]
SAYING = ("say", "count")


def constants(tree: ast.AST) -> set[str]:
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def calls(tree: ast.AST, names: tuple[str, ...]) -> list[ast.Call]:
    """Every call of a method with one of these names."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
    ]


def spoken(tree: ast.AST) -> set[str]:
    """Every text that is handed to ``say`` or ``count`` where it stands."""
    sentences = set()
    for call in calls(tree, SAYING):
        sentences |= {
            argument.value
            for argument in call.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        }
    return sentences


def test_every_sentence_has_every_language_and_every_value() -> None:
    assert len(catalogue()) > 200
    for sentence, texts in catalogue().items():
        assert sorted(texts) == sorted(OTHERS), sentence
        for text in texts.values():
            assert places(text) == places(sentence), text
            assert text.strip(), sentence


def test_every_sentence_that_is_said_is_in_the_catalogue_and_none_is_dead(
    repository: Path,
) -> None:
    known = table_beside(wording.__file__)
    said: set[str] = set()
    written: set[str] = set()
    for path in (repository / "cad" / "run").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if "Wording" in path.read_text(encoding="utf-8") and path.name != "wording.py":
            said |= spoken(tree)
        written |= constants(tree)
    assert len(said) > 100
    assert said - set(catalogue()) == set()
    reasons = table_beside(str(repository / "cad/run/reports/reasons.py"))
    dictated = reasons["dictated"]
    phrases = {words[side] for words in dictated.values() for side in ("low", "high")}
    phrases.update(reasons["levels"])
    for forms in reasons["numbers"].values():
        phrases.update(forms)
    assert phrases <= set(known["sentences"])
    sides = {"suspicious", "not suspicious", "equivocal"}  # side_of_half
    # A sentence with a longer end is put together of two texts in the code.
    longer = {
        text
        for text in known["sentences"]
        if text.endswith(("reaches above it", "reaches below it"))
    }
    assert set(known["sentences"]) - written - phrases - sides - longer == set()


@pytest.mark.parametrize("language", OTHERS)
def test_what_tables_hold_is_said_again(language: str) -> None:
    words = Wording(language)
    tree = ast.parse(Path(decide.__file__).read_text(encoding="utf-8"))
    reasons = {decide.SIMULATED_TRAINING, decide.UNSEEN}
    for call in calls(tree, ("append",)):
        reasons |= {a.value for a in call.args if isinstance(a, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.List):
            reasons |= {text for text in constants(node) if " " in text and "%" not in text}
    reasons |= {
        "the tool suspects cancer, the readers on average do not",
        "the tool suspects cancer, the reader does not",
        "the tool does not suspect cancer, the readers on average do",
        "ADC may lie 12.1 mm beside T2",
        "age unknown",
        "ISUP 2 or more",
    }
    # Pieces of formatted sentences, which stand whole above.
    pieces = {"the tool suspects cancer, ", "the tool does not suspect cancer, ", " not"}
    reasons -= pieces
    assert len(reasons) > 12
    for reason in sorted(reasons):
        assert words.again(reason) != reason, reason
    for zone in WORDS.values():
        assert words.again(zone) != zone
    for sector in SECTOR_NAMES:
        level, zone = sector.rsplit(" ", 1)
        assert (
            words.again(f"{level} {WORDS[zone]} (estimated)").count(words.again(WORDS[zone])) == 1
        )


def test_what_the_catalogue_does_not_have_is_refused_or_stays() -> None:
    assert Wording("de").again("cannot open file x.nii.gz") == "cannot open file x.nii.gz"
    assert Wording("de").say("Region {region}", region="{2}") == "Region {2}"
    with pytest.raises(KeyError):
        Wording("de").say("no such sentence")
    with pytest.raises(CadError, match="no language 'it'"):
        Wording("it")
