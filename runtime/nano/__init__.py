"""The embedded demonstration model, `nano.gguf`; `MODEL_CARD.md` says how it was made."""
