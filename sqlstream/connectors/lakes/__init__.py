"""What the connectors of lakehouses share: Delta Lake and Apache Iceberg."""
