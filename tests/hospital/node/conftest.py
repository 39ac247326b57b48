"""A node's inbox without its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_node import make_settings

from cad.hospital.node.inbox import Inbox
from cad.hospital.node.queue import Queue
from cad.hospital.node.settings import NodeSettings


@pytest.fixture
def settings(tmp_path: Path) -> NodeSettings:
    return make_settings(tmp_path / "home")


@pytest.fixture
def inbox(settings: NodeSettings) -> Iterator[Inbox]:
    queue = Queue(settings.home / "queue.sqlite")
    made = Inbox(settings, queue)
    yield made
    made.close()
    queue.close()
