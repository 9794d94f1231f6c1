"""Process functions: the user's code over the rows of each key."""
