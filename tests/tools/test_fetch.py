"""fetch_url against a real server: what is fetched, what is refused, what is cut."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import FetchTools
from triplepoint.tools import fetch as fetch_module
from triplepoint.tools.html import html_to_text
from triplepoint.tools.ssrf_guard import is_public, resolve

PAGE = """<!DOCTYPE html><html><head><title>The  title</title><style>p{}</style></head><body>
<nav><a href="/home">Home</a></nav><h1>Head</h1><p>One   two<br>three &amp; <b>four</b></p>
<script>alert("no")</script><ul><li>a</li><li><a href="https://x.org/">link</a></li></ul>
<pre>  keep
   this</pre><table><tr><td>1</td><td>2</td></tr></table></body></html>"""


class Handler(BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:  # noqa: C901 - one arm for each path
        self.server.hits.append(self.path)  # pyright: ignore[reportAttributeAccessIssue]
        port = self.server.server_port  # pyright: ignore[reportAttributeAccessIssue]
        match self.path.split("?")[0]:
            case "/page":
                self._send(PAGE.encode(), "text/html; charset=utf-8")
            case "/text":
                self._send(f"host {self.headers['Host']}".encode(), "text/plain")
            case "/latin":
                self._send("Käse".encode("latin-1"), "text/plain; charset=latin-1")
            case "/meta":
                self._send('<meta charset="latin-1">Käse'.encode("latin-1"), "text/html")
            case "/json":
                self._send(b'{"a": 1}', "application/json")
            case "/image":
                self._send(b"\x89PNG\0", "image/png")
            case "/gzip":
                self._send(gzip.compress(b"packed"), "text/plain", encoding="gzip")
            case "/bomb":
                self._send(gzip.compress(b"x" * 50_000_000), "text/plain", encoding="gzip")
            case "/broken":
                self._send(b"\x1f\x8b not gzip at all", "text/plain", encoding="gzip")
            case "/parts":
                packed = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0" * 9
                self._send(packed, "text/plain", encoding="gzip")
            case "/half":
                packed = gzip.compress(random.Random(1).randbytes(4000).hex().encode())
                self._send(packed[:2000], "text/plain", encoding="gzip")
            case "/padded":
                self._send(gzip.compress(b"x"), "text/plain", encoding="gzip", more=True)
            case "/charset":
                self._send(b"plain", f"text/plain; charset={self.path.partition('?')[2]}")
            case "/nowhere":
                self._send(b"", "text/plain", status=302)
            case "/far":
                self._redirect(f"http://127.0.0.1:{port}9/")
            case "/port":
                self._redirect(f"http://127.0.0.1:{self.path.partition('?')[2]}/text")
            case "/brotli":
                self._send(b"....", "text/plain", encoding="br")
            case "/missing":
                self._send(b"<p>gone away</p>", "text/html", status=404)
            case "/go":
                self._redirect("/go/")
            case "/go/":
                self._send(b"there", "text/plain")
            case "/on":
                self._redirect("/text")
            case "/query":
                self._redirect("/query?more=1")
            case "/loop":
                self._redirect("/loop")
            case "/other":
                self._redirect(f"http://localhost:{port}/text")
            case "/scheme":
                self._redirect("file:///etc/passwd")
            case "/endless":
                self._endless(b"x" * 65536, 0)
            case "/drip":
                self._endless(b"x", 0.05)

    def _send(
        self, body: bytes, kind: str, encoding: str = "", status: int = 200, more: bool = False
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body) + more * 10_000_000_000))
        self.end_headers()
        self.wfile.write(body)
        with contextlib.suppress(OSError):
            while more and not self.server.ended:  # pyright: ignore[reportAttributeAccessIssue]
                self.wfile.write(b"j" * 65536)

    def _redirect(self, to: str) -> None:
        self.send_response(302)
        self.send_header("Location", to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _endless(self, chunk: bytes, pause: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        try:
            while not self.server.ended:  # pyright: ignore[reportAttributeAccessIssue]
                self.wfile.write(chunk)
                time.sleep(pause)
        except OSError:
            pass

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.hits, made.ended = [], False  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.ended = True  # pyright: ignore[reportAttributeAccessIssue]
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def base(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def fetch() -> FetchTools:
    """One that may fetch from this machine, for there is nothing else here."""
    return FetchTools(private=True, max_bytes=100_000, max_seconds=10)


def test_a_page_is_read_as_text(fetch: FetchTools, base: str) -> None:
    """HTML becomes what a reader sees: no scripts, links with their address."""
    assert fetch.fetch_url(f"{base}/page") == (
        "The title\n\nHome (/home)\n\n# Head\n\nOne two\nthree & four\n\n- a\n\n"
        "- link (https://x.org/)\n\n  keep\n   this\n\n | 1 | 2"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/json", '{"a": 1}'),
        ("/latin", "Käse"),
        ("/meta", "Käse"),
        ("/gzip", "packed"),
        ("/parts", "one two"),
        *((f"/charset?{name}", "plain") for name in ("hex", "zlib", "idna", "undefined", "x")),
    ],
)
def test_text_is_decoded(fetch: FetchTools, base: str, path: str, expected: str) -> None:
    """By its header or its own word, packed or not."""
    assert fetch.fetch_url(base + path) == expected


def test_the_host_is_named_and_a_redirect_followed(fetch: FetchTools, base: str) -> None:
    """The server sees its name, though the connection goes to an address."""
    assert fetch.fetch_url(f"{base}/go") == "there"
    assert fetch.fetch_url(f"{base}/text") == f"host {base[7:]}"
    localhost = base.replace("127.0.0.1", "localhost")
    assert fetch.fetch_url(f"{localhost}/text") == f"host {localhost[7:]}"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/image", "not text: image/png"),
        ("/missing", "HTTP 404 from .*: gone away"),
        ("/broken", "gzip data cannot be read"),
        ("/half", "gzip data ends too early"),
        ("/nowhere", "HTTP 302 from .*: no text"),
        ("/far", "ports are 1 to 65535"),
        ("/brotli", "packs the page as br"),
        ("/loop", "more than 5 redirects"),
        ("/other", "redirects to another place: http://localhost"),
        ("/on", "redirects to another place: .*/text; fetch that if needed"),
        ("/query", r"redirects to another place: .*/query\?more=1"),
        ("/scheme", "only http:// and https:// are fetched: file:"),
    ],
)
def test_what_cannot_be_had_is_told(fetch: FetchTools, base: str, path: str, message: str) -> None:
    """One line says what is wrong."""
    with pytest.raises(ToolError, match=message):
        fetch.fetch_url(base + path)


def test_another_port_is_another_place(fetch: FetchTools, base: str) -> None:
    """What listens there was not what the call named; and https is no less safe than http."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ToolError, match=f"to another place: http://127.0.0.1:{port}/text"):
            fetch.fetch_url(f"{base}/port?{port}")
    safer = fetch_module._next(httpx.URL("http://a.org/x"), "https://a.org:443/x")
    assert str(safer) == "https://a.org/x"
    with pytest.raises(ToolError, match="another place"):
        fetch_module._next(httpx.URL("http://a.org/x"), "https://a.org:8443/x")


def test_packed_data_with_an_endless_end(fetch: FetchTools, base: str) -> None:
    """What follows the packed page does not unpack: it is not read until the time is up."""
    assert fetch.fetch_url(f"{base}/padded").startswith("x\n[cut: ")


def test_a_fetch_without_a_limit(base: str) -> None:
    """Infinity is as long as the system can wait."""
    fetch = FetchTools(private=True, max_seconds=float("inf"))
    assert fetch.fetch_url(f"{base}/json") == '{"a": 1}'
    with pytest.raises(ToolError, match="max_bytes must be a whole number of 1 or more"):
        FetchTools(max_bytes=0)


def test_certificates_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to correct."""
    fetch_module._certificates.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    with pytest.raises(ToolError, match=r"certificates cannot be read .* correct SSL_CERT_FILE"):
        FetchTools(private=True).fetch_url("https://127.0.0.1:1/")


@pytest.mark.parametrize("path", ["/bomb", "/endless"])
def test_a_large_body_is_cut(fetch: FetchTools, base: str, path: str) -> None:
    """A packed bomb and an endless body are read up to the limit, and it is said."""
    text = fetch.fetch_url(base + path)

    assert text.startswith("xxxx")
    assert text.endswith("\n[cut: the page continues after 100,000 bytes]")
    assert len(text) < 100_100


def test_a_slow_server_is_left(base: str) -> None:
    """A server that drips a byte now and then does not hold the answer up."""
    fetch = FetchTools(private=True, max_seconds=0.3)
    with pytest.raises(ToolError, match=r"no answer within 0\.3 seconds"):
        fetch.fetch_url(f"{base}/drip")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "/etc/passwd",
        "example.org",
        "http://",
        "http://user:pass@example.org/",
        "http://example.org\\@127.0.0.1/",
        "http://exa mple.org/",
        "http://example.org/\r\nHost: x",
        "http://" + "a" * 3000,
        "http://xn--a/",
        "http://example.org:65536/",
        "http://example.org:0/",
    ],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    """Before anything is resolved."""
    with pytest.raises(ToolError, match=r"invalid URL|only http|credentials"):
        FetchTools().fetch_url(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "2130706433",
        "0x7f.1",
        "0",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "10.0.0.1",
        "[fe80::1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ],
)
def test_private_addresses_are_not_fetched(server: ThreadingHTTPServer, host: str) -> None:
    """However an address of this machine or its network is written, nothing is sent to it."""
    before = len(server.hits)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ToolError, match=r"private address|no such host"):
        FetchTools().fetch_url(f"http://{host}:{server.server_address[1]}/text")

    assert len(server.hits) == before  # pyright: ignore[reportAttributeAccessIssue]


def test_one_private_answer_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with a public and a private address is refused; there is no second look-up."""
    asked: list[str] = []

    def answer(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        found = ["93.184.216.34", "127.0.0.1"] if host == "both.test" else ["93.184.216.34"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in found]

    monkeypatch.setattr(socket, "getaddrinfo", answer)

    with pytest.raises(ToolError, match=r"both\.test is a private address \(127\.0\.0\.1\)"):
        resolve("both.test", 80)
    assert resolve("public.test", 80) == "93.184.216.34"
    assert asked == ["both.test", "public.test"]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("100.64.0.1", False),
        ("192.0.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("fc00::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("::7f00:1", False),
        ("::ffff:0:7f00:1", False),
        ("64:ff9b:1::7f00:1", False),
        ("64:ff9b::7f00:1", False),
        ("::", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    """Neighbors, groups and wrapped addresses are told apart from the open net."""
    assert is_public(address) is public


def test_blanks_and_links_without_end_take_no_time() -> None:
    """A page of half a megabyte is read in well under a second, whatever it is made of."""
    for page in (
        "<pre>" + " " * 500_000 + "x</pre>",
        "<a href=/x>y" * 40_000 + "</a>" * 40_000,
        "<img alt='" + "\t" * 500_000 + "x'>",
    ):
        began = time.process_time()
        assert html_to_text(page)
        assert time.process_time() - began < 20  # hours, where it is quadratic


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["<a ", "<!--", "<svg>", "<object></p>", "<a b='", "<![CDATA[", "</a ", "<?", "&#1"]
)
def test_no_markup_takes_hours(part: str) -> None:
    """What never ends, or is never closed, is read once and not again and again."""
    page = part * (300_000 // len(part)) + "</p>" * 50_000
    began = time.process_time()
    html_to_text(page)
    assert time.process_time() - began < 20  # hours, where it is quadratic


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>x</p><![<![<!", "x"),
        ("a &#" + "9" * 5000 + "; &amp;", None),
        ("<a href='&#" + "9" * 5000 + ";'>x</a>", "x"),
        ("a < b <p title='1 > 0'>c", "a < b\nc"),
        ("<img src=x alt='a > b'><br/>c", "[image: a > b]\nc"),
        ("<script>if (a<b) '</p>'</script ><style>p</style>x", "x"),
        ("<!-- a > b -->x<!-->y", "xy"),
        ("<p>x <b", "x <b"),
    ],
)
def test_odd_markup(html: str, text: str | None) -> None:
    """What a browser reads is read, and what it would not show is not."""
    assert html_to_text(html) == (html if text is None else text)


@pytest.mark.parametrize(
    "html",
    ["", "<", "<p", "</b></p></table>", "<head><p>seen", "<a href=x", "&#xD800;", "<pre><pre></p>"],
)
def test_any_html_is_read(html: str) -> None:
    """Broken pages give what there is, and never an exception."""
    assert isinstance(html_to_text(html), str)
    assert html_to_text("<head><title>t</title><p>seen") == "t\n\nseen"


def test_its_effect_is_declared() -> None:
    """It is a tool of the net."""
    assert [(one.name, one.effect) for one in FetchTools()] == [("fetch_url", "net")]
