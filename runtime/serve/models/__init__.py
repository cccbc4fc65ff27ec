"""Loaded models, prompts for them, and their answers as events."""
