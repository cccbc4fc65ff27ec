"""Conversion of other tools' checkpoints to GGUF files."""
