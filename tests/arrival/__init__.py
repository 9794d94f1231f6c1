"""Queries with ties that the order of arrival decides, over all kinds of sources: what they read, and what is right."""
