"""Decisions: thresholds, costs, rejects, patients."""
