"""Process functions: users' classes that are called for the rows and timers of each key, with keyed and broadcast state."""
