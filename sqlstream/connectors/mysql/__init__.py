"""The `mysql` connector: a table of a MySQL or MariaDB server that jobs write."""
