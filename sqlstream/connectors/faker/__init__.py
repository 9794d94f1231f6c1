"""Tables of made-up rows that look like real ones."""
