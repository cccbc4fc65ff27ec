"""What this machine can do, what a pass costs, and which bound holds."""
