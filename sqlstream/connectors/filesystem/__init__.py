"""The `filesystem` connector: files of a folder as a source, whole files as a sink."""
