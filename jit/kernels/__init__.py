"""triplepoint.jit.kernels."""
