"""Binding of windows: table functions, the older GROUP BY form, hints."""
