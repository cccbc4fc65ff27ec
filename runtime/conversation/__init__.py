"""Convert messages to token ids and replies to messages: template, ledger, tool-call formats."""
