"""The agent loop: append, generate, act, until there is an answer."""
