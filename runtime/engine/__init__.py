"""A loaded model and its sessions: prefill, decode, and their accounts."""
