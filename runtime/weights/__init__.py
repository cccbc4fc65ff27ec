"""Weights of a file, packed into panels and cached on disk."""
