"""The `socket` connector: lines from a TCP port."""
