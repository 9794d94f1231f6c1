"""The logical plan: its nodes, what is known of them, rules that make it simpler, and plans as text."""
