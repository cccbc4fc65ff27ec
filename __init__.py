"""triplepoint: an agent runtime for the CPU you own."""

__version__ = "0.1.0"
