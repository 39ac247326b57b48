"""Compute parameters of perfusion from the signal of a dynamic contrast series."""
