"""Everything that is tested without being shipped: unit, property, golden and Spark tests, fuzzer, benchmark."""
