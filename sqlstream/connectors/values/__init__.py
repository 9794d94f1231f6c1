"""The rows of VALUES, which are in the query itself, as a source."""
