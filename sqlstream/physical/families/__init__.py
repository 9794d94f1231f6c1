"""The plans of stateful nodes: a class for each kind of operator."""
