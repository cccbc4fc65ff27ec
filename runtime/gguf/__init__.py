"""The GGUF file format: read, check, write."""
