"""How a job is run: processes, limits, resuming, locks, progress; nothing here changes a result."""
