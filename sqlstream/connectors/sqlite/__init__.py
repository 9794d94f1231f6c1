"""The `sqlite` connector: a table of a SQLite file that jobs write."""
