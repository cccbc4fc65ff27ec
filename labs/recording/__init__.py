"""Recordings for the repository: example runs, and pictures of the docs."""
