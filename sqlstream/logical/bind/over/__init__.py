"""Binding of calls with OVER."""
