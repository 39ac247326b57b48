"""Measures of probabilities and rankings, and their intervals."""
