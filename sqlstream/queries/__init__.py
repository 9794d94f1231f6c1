"""State queries: statements, what names mean in them, system tables, the sandbox they run in."""
