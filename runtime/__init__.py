"""triplepoint.runtime."""
