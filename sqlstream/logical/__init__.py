"""What to compute: names and types resolved, every query a tree of relational nodes."""
