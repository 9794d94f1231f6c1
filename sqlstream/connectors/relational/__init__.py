"""What sinks that write tables of databases share: the SQL, the check of a table's columns, and batches that count once."""
