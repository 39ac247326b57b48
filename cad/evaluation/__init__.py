"""Measures, leave-one-patient-out, intervals and tests, readers, decisions."""

from cad.evaluation.crossval import OutOfFold, out_of_fold

__all__ = ["OutOfFold", "out_of_fold"]
