"""Provide terms, errors, files, processes and settings, on which all other packages build."""
