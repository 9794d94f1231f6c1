"""The `sqlite` connector: a table of a SQLite file, which jobs write, and in which they look up rows."""
