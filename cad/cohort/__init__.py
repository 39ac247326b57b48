"""A cohort folder: its tables, read, checked and written."""

from cad.cohort.tables import (
    COHORT,
    MISSING,
    SIMULATOR,
    Cohort,
    StudyRef,
    is_simulated,
    read_cohort,
    with_readings,
    write_tables,
)

__all__ = [
    "COHORT",
    "MISSING",
    "SIMULATOR",
    "Cohort",
    "StudyRef",
    "is_simulated",
    "read_cohort",
    "with_readings",
    "write_tables",
]
