"""State of an operator made of that of another one, by families of operators; `registry` knows them all."""
