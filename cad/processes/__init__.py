"""Processes of our own that do something for this one, under limits, and end with it."""

from cad.processes.child import as_child, end_child, limit_memory, start_child

__all__ = ["as_child", "end_child", "limit_memory", "start_child"]
