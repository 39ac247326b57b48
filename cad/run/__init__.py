"""From a cohort to a run folder and its pages, stage by stage."""
