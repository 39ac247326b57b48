"""Run jobs: processes, limits, resuming, progress; nothing here changes a result."""
