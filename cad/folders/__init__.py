"""Read and write the two kinds of folder that users' scripts depend on: cohorts and runs."""
