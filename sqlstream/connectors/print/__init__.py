"""The `print` connector: rows are shown to whoever runs the job."""
