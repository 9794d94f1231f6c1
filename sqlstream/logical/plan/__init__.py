"""The logical plan: its nodes and their properties, rules that simplify it, and its text."""
