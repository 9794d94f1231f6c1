"""Computes the state of an operator from the state of an older one. `registry` has the adaptation of each kind."""
