"""Calls with OVER in the order of time."""
