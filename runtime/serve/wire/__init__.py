"""The wire formats, and what they share: validated bodies, messages, tools, sampling settings."""
