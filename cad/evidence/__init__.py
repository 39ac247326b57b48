"""Reproduce the papers' tables, run public cohorts of real people, and simulate cohorts."""
