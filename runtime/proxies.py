"""Text for network errors: the proxy in use, and URLs without secrets."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def through_proxy(url: str) -> str:
    """Return " through the proxy …" where the environment has one for this address, else ""."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return ""
    return f" through the proxy {bare(proxy if '://' in proxy else f'http://{proxy}')}"


def bare(url: str) -> str:
    """Return a URL without its query (signatures) and user info (passwords)."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
