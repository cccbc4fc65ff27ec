"""This machine's limits, the cost of a pass, and the bound that holds."""
