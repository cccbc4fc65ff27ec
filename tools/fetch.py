"""The tool fetch_url: a page or file from the web as text, within limits.

* Only http and https; no credentials in the address; no proxy from the environment.
* Every host is resolved once, every address it has must be public, and the connection goes to the
  address that was checked. So it is after each redirect: no second DNS answer is ever used.
* A redirect to another host or port is reported, not followed: that is a new call for the policy.
* Limits on time (over all), bytes (after decompression) and redirects.
"""

from __future__ import annotations

import codecs
import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..arguments import check_whole
from ..errors import ToolError
from .paths import check_text, shown
from .timeouts import TimedTask, limit_of
from .tool import ToolGroup, tool

if TYPE_CHECKING:
    import ssl

    import httpx

MAX_BYTES = 4 * 2**20  # of a body, decompressed
MAX_SECONDS = 30.0
MAX_REDIRECTS = 5
MAX_URL = 2000  # characters

_TEXT = re.compile(r"text/|application/(.*[+/])?(json|xml|javascript|yaml|toml|x-sh|x-ndjson)\b")

# Codecs of Python's that no page is written in; for one of them time grows with the square.
_NO_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Page:
    """An HTTP response, its body read up to a limit."""

    url: str
    status: int
    kind: str
    """Media type, without parameters."""
    charset: str
    body: bytes
    cut: bool
    """Whether the body exceeds the limit."""

    def text(self) -> str:
        """Decode the body to text; convert HTML to plain text.

        Raises:
            ToolError: it is no text.
        """
        if self.kind and not _TEXT.match(self.kind) and self.kind != "application/xhtml+xml":
            raise ToolError(f"not text: {self.kind}, {len(self.body):,} bytes")
        if not self.kind and b"\0" in self.body[:1024]:
            raise ToolError(f"not text: {len(self.body):,} bytes of an unknown kind")
        text = self._decoded()
        is_html = "html" in self.kind or (
            not self.kind and text[:512].lstrip().lower().startswith(("<!doctype html", "<html"))
        )
        if not is_html:
            return text.removeprefix("\ufeff")
        from .html import html_to_text

        return html_to_text(text)

    def _decoded(self) -> str:
        named = self.charset
        if not named and "html" in self.kind:
            found = re.search(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", self.body[:2048])
            named = found[1].decode("ascii", "replace") if found else ""
        try:
            codec = codecs.lookup(named or "utf-8").name
            return self.body.decode("utf-8" if codec in _NO_CHARSETS else codec, "replace")
        except (LookupError, UnicodeError):  # unknown, or no code of characters at all, such as hex
            return self.body.decode("utf-8", "replace")


class FetchTools(ToolGroup):
    """The tool fetch_url, for an agent. Iterating yields the `Tool`.

    Args:
        private: whether to allow hosts on this machine and its network.
        max_bytes: maximum size of a body, decompressed.
        max_seconds: time limit of one call, including redirects.

    Raises:
        ToolError: a limit cannot be one.
    """

    def __init__(
        self,
        *,
        private: bool = False,
        max_bytes: int = MAX_BYTES,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self._private = private
        check_whole(max_bytes, "max_bytes", ToolError, least=1)
        self._max_bytes = max_bytes
        self._max_seconds = limit_of(max_seconds, "max_seconds")
        self._tools = (tool(effect="net")(self.fetch_url),)

    def fetch_url(self, url: str) -> str:
        """Fetch a web page or text file and return its text.

        Args:
            url: The address, beginning with http:// or https://.
        """
        page = self.fetch(url)
        text = page.text().strip()
        if page.status >= 300:  # of a redirect, only one that leads nowhere
            raise ToolError(f"HTTP {page.status} from {shown(page.url)}: {text[:300] or 'no text'}")
        note = f"\n[cut: the page continues after {self._max_bytes:,} bytes]" if page.cut else ""
        return (text or "(empty page)") + note

    def fetch(self, url: str) -> Page:
        """Fetch the page at a URL.

        Raises:
            ToolError: the address is not allowed, or the page cannot be fetched in time.
        """
        import asyncio  # with all that it imports, only where a page is fetched

        address = _checked(url)

        def work() -> Page:
            loop = asyncio.new_event_loop()
            try:
                limited = asyncio.wait_for(self._follow(address), self._max_seconds)
                return loop.run_until_complete(limited)
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())  # of a body that was cut
                loop.close()

        late = f"no answer within {self._max_seconds:g} seconds: {shown(url)}"
        try:
            # A thread of its own: the caller may run a loop; and a look-up that hangs is abandoned.
            return TimedTask(work, "fetch_url").wait(self._max_seconds + 1, late)
        except TimeoutError:
            raise ToolError(late) from None

    async def _follow(self, address: httpx.URL) -> Page:
        import httpx

        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(
            verify=_certificates(),
            trust_env=False,
            follow_redirects=False,
            timeout=None,
            limits=limits,
        ) as client:
            first = address
            for _ in range(MAX_REDIRECTS + 1):
                try:
                    found = await self._get(client, address)
                except httpx.HTTPError as error:
                    what = str(error) or type(error).__name__
                    raise ToolError(f"cannot fetch {shown(str(address))}: {what}") from None
                if isinstance(found, Page):
                    return found
                address = _next(address, found)
        raise ToolError(f"more than {MAX_REDIRECTS} redirects: {shown(str(first))}")

    async def _get(self, client: httpx.AsyncClient, url: httpx.URL) -> Page | str:
        """Send one request; return the page, or its redirect's target."""
        import asyncio

        from .ssrf_guard import resolve

        host, port = url.host, _port(url)
        ip = await asyncio.to_thread(resolve, host, port, private=self._private)
        request = client.build_request(
            "GET",
            url.copy_with(host=ip),
            headers={
                "Host": url.netloc.decode("ascii"),
                "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5",
                "Accept-Encoding": "gzip",
                "User-Agent": "triplepoint",
            },
            extensions={"sni_hostname": host},
        )
        response = await client.send(request, stream=True)
        try:
            if response.has_redirect_location:
                return response.headers["location"]
            body, cut = await self._body(response)
        finally:
            await response.aclose()
        kind, _, parameters = response.headers.get("content-type", "").partition(";")
        charset = re.search(r"charset=[\"']?([\w-]{1,40})", parameters, re.IGNORECASE)
        return Page(
            str(url),
            response.status_code,
            kind.strip().lower(),
            charset[1] if charset else "",
            body,
            cut,
        )

    async def _body(self, response: httpx.Response) -> tuple[bytes, bool]:
        """Read the body up to the limit; decompress here, since a library would expand a bomb."""
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "x-gzip", ""):
            raise ToolError(
                f"the server packs the page as {shown(encoding)}, which was not asked for"
            )
        unpack = _Gzip() if "gzip" in encoding else None
        body = bytearray()
        taken = 0
        async for chunk in response.aiter_raw():
            room = self._max_bytes + 1 - len(body)
            body += chunk[:room] if unpack is None else unpack.add(chunk, room)
            taken += len(chunk)
            # What follows packed data and does not unpack to anything has no end, perhaps.
            if len(body) > self._max_bytes or taken > 2 * self._max_bytes + 65536:
                return bytes(body[: self._max_bytes]), True
        if unpack is not None and taken and not unpack.complete:
            raise ToolError("the page is damaged: its gzip data ends too early")
        return bytes(body), False


class _Gzip:
    """Unpacks gzip data, of one part or of several; what follows the last one is left out."""

    def __init__(self) -> None:
        self.complete = False  # the last part has ended
        self._part: Any = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def add(self, chunk: bytes, room: int) -> bytes:
        """Decompress a further chunk, up to `room` bytes.

        Raises:
            ToolError: it is no gzip data.
        """
        out = b""
        while chunk and len(out) < room:
            if self.complete:
                if not b"\x1f\x8b".startswith(chunk[:2]):  # padding, for example
                    break
                self._part = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                out += self._part.decompress(chunk, room - len(out))
            except zlib.error:
                raise ToolError("the page is damaged: its gzip data cannot be read") from None
            self.complete = self._part.eof
            chunk = self._part.unused_data
        return out


@lru_cache
def _certificates() -> ssl.SSLContext:
    """Load the certificates of SSL_CERT_FILE, else the defaults, which takes a while.

    Raises:
        ToolError: they cannot be read.
    """
    import httpx

    try:
        return httpx.create_ssl_context()
    except OSError as error:  # also what is no certificate
        raise ToolError(
            "no page can be fetched: the certificates cannot be read "
            f"({error.strerror or error}); correct SSL_CERT_FILE or SSL_CERT_DIR, or unset it"
        ) from None


def _checked(url: str) -> httpx.URL:
    """Return the URL if its text permits a fetch.

    Raises:
        ToolError: it may not; says why.
    """
    import httpx

    check_text("the address", url)
    if len(url) > MAX_URL or any(c <= " " or c in "\\\x7f" for c in url):
        raise ToolError(f"invalid URL: {shown(url)}")
    try:
        address = httpx.URL(url)
        host = address.host
    except (httpx.InvalidURL, UnicodeError) as error:  # UnicodeError: a host that is no xn-- name
        raise ToolError(f"invalid URL: {shown(url)} ({error})") from None
    if address.scheme not in ("http", "https") or not host:
        raise ToolError(f"only http:// and https:// are fetched: {shown(url)}")
    if not 0 < _port(address) < 65536:
        raise ToolError(f"invalid URL: {shown(url)} (ports are 1 to 65535)")
    if address.userinfo:
        raise ToolError(f"URLs with credentials are not allowed: {shown(url)}")
    return address.copy_with(fragment=None)


def _port(address: httpx.URL) -> int:
    return _PORTS[address.scheme] if address.port is None else address.port


def _next(address: httpx.URL, location: str) -> httpx.URL:
    """Return a redirect's target if it is equivalent: the same host, port and path up to a slash,
    and the same or a safer scheme.

    What is elsewhere, also on the same host, is not what was allowed: rules may be about it.
    """
    import httpx

    try:
        target = _checked(str(address.join(location)))
    except httpx.InvalidURL:
        raise ToolError(f"a redirect to no address: {shown(location)}") from None
    ways = [(one.scheme, _port(one)) for one in (address, target)]
    elsewhere = target.host != address.host or target.query != address.query
    elsewhere = elsewhere or target.path not in (address.path, address.path + "/")
    if elsewhere or (ways[0] != ways[1] and ways != [("http", 80), ("https", 443)]):
        raise ToolError(
            f"it redirects to another place: {shown(str(target))}; fetch that if needed"
        )
    return target
