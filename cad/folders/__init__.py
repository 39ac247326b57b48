"""Read and write the two folders that users' scripts depend on: a cohort and a run."""
