"""Process functions: classes that get the rows of a key, keep state, set timers and emit rows."""
