"""What the scope of a request (ASGI) holds besides the server's own."""

from __future__ import annotations

REQUEST_ID = "triplepoint.request_id"
"""Identifier of the request."""
NAMESPACE = "triplepoint.namespace"
"""Namespace of the key that it came with; see `PrefixCache`."""
BODY = "triplepoint.body"
"""Bytes of its body, once it was read."""
