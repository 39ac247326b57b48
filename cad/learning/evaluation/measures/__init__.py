"""Measure how good probabilities and rankings are, with intervals."""
