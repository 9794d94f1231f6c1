"""What the connectors share that follow a table by the log of its server: received changes, their files, options."""
