"""What becomes of a job once it is planned: the handle that a session gives out, and how a job is ended and deleted."""
