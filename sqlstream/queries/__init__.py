"""State queries: their statements and names, system tables, and the sandbox in which they run."""
