"""The session of a user, with its tables, functions, jobs and queries."""
