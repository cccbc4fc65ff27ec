"""What use costs, and how far machines go: prices, costs, simulated fleets."""
