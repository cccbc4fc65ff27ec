"""Messages become token ids and replies become messages: template, ledger, tool-call formats."""
