"""The `print` connector: it shows rows to the user who runs the job."""
