"""The agent: feed, ask, act, until there is an answer."""
