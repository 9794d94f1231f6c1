"""`sqlstream serve`: one process that supervises jobs, and answers over HTTP what is asked about them and their state."""
