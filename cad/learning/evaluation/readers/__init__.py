"""Measure readers: how they agree, how good they are against histology, and how a model helps
them.
"""
