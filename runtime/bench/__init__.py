"""Benchmarks: passes, batches, a server under load, llama.cpp, validated predictions."""
