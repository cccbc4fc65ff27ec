"""Weights found in a file, packed into panels, kept on disk."""
