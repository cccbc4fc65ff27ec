"""llama-server's own formats: texts, gaps to fill, tokens and templates."""
