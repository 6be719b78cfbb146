"""Schedules in files: crontabs in, YAML in and out. The commands in `scheduling.management` are the only callers."""
