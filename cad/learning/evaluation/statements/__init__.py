"""Make statements for reviewers: checklists that are answered from the record of a run."""
