"""The `blackhole` connector: it counts rows and drops them."""
