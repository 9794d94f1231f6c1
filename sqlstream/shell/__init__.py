"""The shell: a prompt for SQL, which runs jobs in the background and shows what they do."""
