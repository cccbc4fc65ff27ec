"""Synthetic models: shapes of real models with random weights."""
