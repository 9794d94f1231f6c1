"""`sqlstream serve`: one process that supervises jobs, and answers requests about them and their state over HTTP."""
