"""llama-server's own formats: completion, infill, tokenization and templates."""
