"""How a token is drawn from logits: settings, penalties, filters, and the draw."""
