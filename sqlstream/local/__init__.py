"""Jobs in this process, without Spark: the engine of `INSERT .. VALUES`, and the runner of tests."""
