"""How good a model is, and which of its weights matter."""
