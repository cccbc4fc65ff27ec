"""Capacity planning: prices, costs, simulated fleets."""
