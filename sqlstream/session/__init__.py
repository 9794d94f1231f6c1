"""What a user holds: a session with its tables, functions, jobs and queries."""
