"""Run jobs: start processes, set limits, resume, show progress. Nothing here changes a result."""
