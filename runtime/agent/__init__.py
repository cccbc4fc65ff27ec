"""The agent: append, generate, act, until there is an answer."""
