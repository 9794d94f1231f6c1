"""What an engine is, and what workers do for any of them: scan splits, run fragments, advance operators, store results."""
