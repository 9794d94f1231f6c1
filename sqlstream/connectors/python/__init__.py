"""The `python` connector: the user's own classes."""
