"""triplepoint.runtime.models."""
