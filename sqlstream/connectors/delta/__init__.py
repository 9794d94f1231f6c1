"""Tables of Delta Lake."""
