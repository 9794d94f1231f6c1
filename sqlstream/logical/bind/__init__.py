"""From parsed statements to logical plans: names and types resolved."""
