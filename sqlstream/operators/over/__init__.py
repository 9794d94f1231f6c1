"""OVER aggregations in the order of event time or of arrival, and ORDER BY a time attribute."""
