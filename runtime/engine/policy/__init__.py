"""How passes are run and who is in them: chosen from the machine's limits, corrected by time."""
