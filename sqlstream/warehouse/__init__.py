"""Where things are in a warehouse: files, paths, locks, and what is declared about a job."""
