"""Exactly once from end to end, by killing: see `__main__`."""
