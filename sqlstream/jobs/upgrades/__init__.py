"""Changed queries that keep their state: what becomes of every operator of a job, and carrying it out."""
