"""triplepoint.jit."""
