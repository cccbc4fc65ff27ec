"""Quantization of models: the type of each tensor, and the conversion."""
