"""Answer reviewers' checklists from the record of a run."""
