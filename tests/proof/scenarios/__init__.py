"""Kills in the middle of work, a scenario for each kind of work: see `report`."""
