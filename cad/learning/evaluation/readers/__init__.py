"""Measure readers: agreement, skill against histology, and reading with the tool."""
