"""Fixtures that every test area shares: the reference data, and a count of what was checked."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Children that a test starts see one numerical thread each, as the test itself does.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_DATA = Path(os.environ.get("CAD_REFERENCE_DATA", REPOSITORY.parent / "shared" / "data"))

_checked: Counter[str] = Counter()
_absent: set[str] = set()


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the reference data; a test that needs it is skipped, loudly, without it."""
    if not SHARED_DATA.is_dir():
        _absent.add(str(SHARED_DATA))
        pytest.skip("REFERENCE DATA ABSENT")
    return SHARED_DATA


@pytest.fixture(scope="session")
def counted() -> Callable[[int, str], None]:
    """Call with the number of reference values that a test compared, and their source."""

    def count(number: int, source: str) -> None:
        _checked[source] += number

    return count


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what this process compared to the one that started it (``pytest -n``)."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput |= {"checked": dict(_checked), "absent": sorted(_absent)}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a process compared that has ended."""
    output = getattr(node, "workeroutput", {})
    _checked.update(output.get("checked", {}))
    _absent.update(output.get("absent", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many reference values were compared, so that their absence is seen."""
    if _absent:
        terminalreporter.section("REFERENCE DATA ABSENT: nothing was compared with it")
        for path in sorted(_absent):
            terminalreporter.write_line(f"not found: {path} (set CAD_REFERENCE_DATA)")
    if _checked:
        terminalreporter.section("reference values checked")
        for source, number in sorted(_checked.items()):
            terminalreporter.write_line(f"{source}: {number}")
