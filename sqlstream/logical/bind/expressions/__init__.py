"""Binding of scalar expressions: functions, types, intervals, the time of arrival."""
