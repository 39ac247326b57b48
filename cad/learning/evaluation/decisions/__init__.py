"""Provide decisions from probabilities: thresholds, costs, referring, and decisions on patients."""
