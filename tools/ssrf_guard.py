"""SSRF guard: only public network addresses may be fetched."""

from __future__ import annotations

import ipaddress
import socket

from ..errors import ToolError
from .paths import shown

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# All that is given out so far. Outside of it are addresses that some systems take for IPv4 ones of
# this machine (::127.0.0.1), and networks of one site (fec0::/10, 64:ff9b:1::/48).
_GIVEN_OUT = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether an address, and any address embedded in it, is public."""
    address = ipaddress.ip_address(text.partition("%")[0])  # without a zone
    return all(
        one.is_global and not one.is_multicast and (one.version == 4 or one in _GIVEN_OUT)
        for one in _inside(address)
    )


def _inside(address: Address) -> list[Address]:
    """Return the address and those embedded in it; only the IPv4 one where that is meant."""
    found: list[Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return [address.ipv4_mapped]
        if address in _NAT64:
            return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
        if address.sixtofour is not None:
            found.append(address.sixtofour)
        if address.teredo is not None:
            found += address.teredo
    return found


def resolve(host: str, port: int, *, private: bool = False) -> str:
    """Resolve a host once to a permitted address, so that no second lookup can differ.

    Args:
        host: a name or an address.
        port: for the look-up.
        private: whether addresses that are not public will do.

    Raises:
        ToolError: the host is not known, or one of its addresses is not public.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolError(f"no such host: {shown(host)}") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses:
        raise ToolError(f"no such host: {shown(host)}")
    if not private:
        for address in addresses:
            if not is_public(address):
                raise ToolError(
                    f"{shown(host)} is a private address ({address}); it is not fetched"
                )
    # IPv4 first: a machine without IPv6 often still resolves it.
    return next((a for a in addresses if ":" not in a), addresses[0])
