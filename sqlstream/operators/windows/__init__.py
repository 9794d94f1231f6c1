"""Windows over event time or over numbers of rows: which rows are in them, and when they emit results."""
