"""The two folders on disk that other people's scripts rely on: a cohort and a run."""
