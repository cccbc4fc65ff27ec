"""Measures a model's quality and the importance of its weights."""
