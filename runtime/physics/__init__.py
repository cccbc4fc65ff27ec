"""The machine's measured limits, the cost and latency of a pass, and what bounds it."""
