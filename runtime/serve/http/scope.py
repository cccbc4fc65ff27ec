"""What the scope of a request (ASGI) holds besides the server's own."""

from __future__ import annotations

REQUEST_ID = "triplepoint.request_id"
"""Its identifier."""
NAMESPACE = "triplepoint.namespace"
"""That of the key that it came with; see `PrefixCache`."""
BODY = "triplepoint.body"
"""Its body, once it was read."""
