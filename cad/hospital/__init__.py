"""Provide the services around a run: the node, and pages on which readers score."""
