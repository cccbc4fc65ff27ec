"""Equations of a forward pass become ops on a tape."""
