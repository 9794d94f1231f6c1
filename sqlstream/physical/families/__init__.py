"""Kinds of operators: how each node that keeps state is planned, in a class of its own that answers for it."""
