"""Readers: agreement, skill against histology, and reading with the tool."""
