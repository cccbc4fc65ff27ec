"""triplepoint.runtime.nano."""
