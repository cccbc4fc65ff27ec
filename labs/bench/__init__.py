"""Research benches: what was measured once to choose a design, and can be measured again."""
