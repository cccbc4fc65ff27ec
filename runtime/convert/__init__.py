"""Checkpoints of other tools become GGUF files; GGUF files change their types."""
