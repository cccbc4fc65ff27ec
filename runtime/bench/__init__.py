"""Measured: passes, kernels, other engines, sweeps."""
