"""The helpers in tests/support are importable; a node's inbox without its processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SUPPORT = str(Path(__file__).resolve().parents[1] / "support")
if _SUPPORT not in sys.path:
    sys.path.insert(0, _SUPPORT)

from live_node import make_settings  # noqa: E402

from cad.node.inbox import Inbox  # noqa: E402
from cad.node.queue import Queue  # noqa: E402
from cad.node.settings import NodeSettings  # noqa: E402


@pytest.fixture
def settings(tmp_path: Path) -> NodeSettings:
    return make_settings(tmp_path / "home")


@pytest.fixture
def inbox(settings: NodeSettings) -> Iterator[Inbox]:
    queue = Queue(settings.home / "queue.sqlite")
    yield Inbox(settings, queue)
    queue.close()
