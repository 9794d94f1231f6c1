"""Tables of the warehouse as sources."""
