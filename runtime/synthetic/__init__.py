"""Models of real shapes with made-up weights."""
