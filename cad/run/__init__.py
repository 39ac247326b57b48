"""Lead from a cohort folder to a run folder and its pages, one stage (step of a run) at a time."""
