"""Savepoints: how they are taken and dropped, and how jobs are restored from them."""
