"""Jobs in this process, without Spark: two engines, one that runs them by itself and one that tests drive step by step."""
