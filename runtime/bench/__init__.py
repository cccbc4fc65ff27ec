"""Benchmarks: passes, kernels, other engines, sweeps."""
