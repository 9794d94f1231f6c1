"""From the statements of a script to planned jobs."""
