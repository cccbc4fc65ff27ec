"""Research benchmarks behind design choices, repeatable."""
