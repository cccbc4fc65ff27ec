"""The application: its routes, what it says of itself, and its process from start to end."""
