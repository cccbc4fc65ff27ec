"""The phase diagram of a model on a machine."""
