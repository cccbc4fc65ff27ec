"""Questions with computed answers, and what an oracle, a rival and the agent make of them."""
