"""Servers that answer clients of a warehouse."""
