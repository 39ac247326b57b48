"""Measure probabilities and rankings, with intervals."""
