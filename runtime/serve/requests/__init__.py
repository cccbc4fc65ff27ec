"""Requests from arrival to end: whose turn it is, what runs, and what is known of it afterwards."""
