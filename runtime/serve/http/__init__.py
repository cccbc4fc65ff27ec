"""HTTP below the wire formats: connection limits, authentication, errors, notes, request IDs."""
