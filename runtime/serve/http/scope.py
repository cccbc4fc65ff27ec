"""Keys that this server adds to the ASGI scope of a request."""

from __future__ import annotations

REQUEST_ID = "triplepoint.request_id"
"""Request ID."""
NAMESPACE = "triplepoint.namespace"
"""Namespace of the request's API key; see `PrefixCache`."""
BODY = "triplepoint.body"
"""Bytes of the request body, once it was read."""
