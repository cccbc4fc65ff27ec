"""Models of real shapes with random weights."""
