"""Folders that one process at a time changes, by one commit."""

from cad.folders.change import commit, is_ours, keep, owned, pending, settle, stage
from cad.folders.kind import Kind, claimed, require_kind

__all__ = [
    "Kind",
    "claimed",
    "commit",
    "is_ours",
    "keep",
    "owned",
    "pending",
    "require_kind",
    "settle",
    "stage",
]
