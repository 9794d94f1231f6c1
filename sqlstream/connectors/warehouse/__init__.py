"""Tables of the warehouse: sources, sinks and lookup tables, and their publication as Delta Lake or Iceberg tables."""
