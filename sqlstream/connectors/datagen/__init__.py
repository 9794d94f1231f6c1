"""The `datagen` connector: made-up rows."""
