"""A model in memory: weights, kernels and threads, its passes as plans, and its costs."""
