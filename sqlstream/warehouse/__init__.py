"""A warehouse on disk: files, paths, locks, and the records of jobs."""
