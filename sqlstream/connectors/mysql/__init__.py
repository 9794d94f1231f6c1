"""The `mysql` connector: a table of a MySQL or MariaDB server which jobs write, and in which they look up rows."""
