"""Models that are loaded, the prompts that they are asked, and their answers as events."""
