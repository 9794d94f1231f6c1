"""The `mysql-cdc` connector: the rows of a table of a MySQL or MariaDB server, and then every change of them."""
