"""Anthropic's format: messages of blocks."""
