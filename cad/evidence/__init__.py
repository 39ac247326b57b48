"""Reproduce the papers behind the learners, test on public cohorts, and simulate cohorts."""
