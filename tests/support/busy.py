"""Print the tests and fixtures that took most processor time, children included.

``python -m pytest -p tests.support.busy`` in one process; ``--durations`` goes by the clock, which
other work on the machine stretches. A process counts when it has ended: the browser, at the end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

SHOWN = 30

_spent: Counter[str] = Counter()
_inner: list[float] = []


def _now() -> float:
    """Return processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _measured(name: str) -> Iterator[None]:
    """Count what happens meanwhile under this name, without what has a name of its own."""
    start = _now()
    _inner.append(0.0)
    yield
    whole = _now() - start
    _spent[name] += whole - _inner.pop()
    if _inner:
        _inner[-1] += whole


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test with its set-up and its end."""
    yield from _measured(item.nodeid)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    """Measure a fixture that tests share apart from the test that happened to be first."""
    shared = fixturedef.scope != "function"
    yield from _measured(f"fixture {fixturedef.argname}") if shared else _nothing()


def _nothing() -> Iterator[None]:
    yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the list, and what all of it took."""
    terminalreporter.section(f"processor seconds, {_now():.0f} in all")
    for name, seconds in _spent.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:7.1f} {name}")
