"""Statements for reviewers: checklists answered from what a run recorded."""
