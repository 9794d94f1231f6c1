"""Code that the lakehouse connectors share: Delta Lake and Apache Iceberg."""
