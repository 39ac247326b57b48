"""Provide further workflows: import, check, comparison, suggestion, maps, outlines and delivery."""
