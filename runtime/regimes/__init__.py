"""The phase diagram of a model on a machine: what bounds a pass, by tokens and KV length."""
