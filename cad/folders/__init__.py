"""Folders that one process at a time changes, by one commit."""

from cad.folders.change import commit, is_ours, keep, owned, pending, settle, stage

__all__ = ["commit", "is_ours", "keep", "owned", "pending", "settle", "stage"]
