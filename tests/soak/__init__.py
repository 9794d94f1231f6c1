"""Many small batches, and half an hour with everything at once: see `__main__`."""
