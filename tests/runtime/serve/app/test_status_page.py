"""The page at ``/``, in a browser, and the numbers that it shows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import chromium
from helpers.serving import Server

KEY = "let-me-in"


def shown(browser: chromium.Chromium) -> bool:
    """Whether the numbers have come."""
    return browser.value("document.documentElement.dataset.ready") == "yes"


def test_what_it_is_made_of(server: Server) -> None:
    """Requests with their phases, the queue and the models; nothing of what was said."""
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: server.chat(f"secret number {n}", max_tokens=20), range(3)))
    server.idle()
    answer = server.client.get("/status.json")
    found = answer.json()

    assert "secret" not in answer.text
    assert (found["running"], found["waiting"]) == (0, 0)
    assert [one["name"] for one in found["models"]] == ["nano"]
    assert len(found["requests"]) >= 3
    for one in found["requests"]:
        assert one["state"] == "done"
        assert one["arrived"] <= one["started"] <= one["ended"] <= found["now"]
        prefill, decode = one["phases"]
        assert (prefill["regime"].endswith("prefill"), decode["tokens"]) == (True, one["tokens"])
        assert prefill["end"] <= decode["end"]
        assert {type(phase["contended"]) for phase in one["phases"]} == {bool}
    assert found["rates"]["generation"] > 0


@pytest.mark.slow
def test_the_page_in_a_browser(browser: chromium.Chromium, server: Server) -> None:
    """It shows models and a lane for each request, asks nobody else, and has no complaint."""
    server.chat(max_tokens=20)
    server.idle()
    browser.open(f"{server.url}/")
    browser.wait(lambda: shown(browser))

    assert browser.complaints == []
    assert {url.removeprefix(server.url) for url in browser.requests} <= {
        "/",
        "/status.json",
        "data:,",
    }
    lanes = browser.value("document.querySelectorAll('#requests rect').length")
    assert lanes >= 2
    assert browser.value("document.querySelector('#models td').textContent") == "nano"
    fills = browser.value(
        "[...new Set([...document.querySelectorAll('#requests rect')]"
        ".map((one) => getComputedStyle(one).fill))]"
    )
    assert "rgb(0, 0, 0)" not in fills, "each regime has a color"


@pytest.mark.slow
def test_before_the_first_request(browser: chromium.Chromium, start: Callable[..., Server]) -> None:
    """An idle server says where it is, whether it wants a key, and how to ask; it fits a phone."""
    server = start()
    server.wait()
    browser.fits(f"{server.url}/", "document.documentElement.dataset.ready == 'yes'")
    shown_text = browser.value("document.querySelector('#first').innerText")
    assert f"{server.url}/v1" in shown_text
    assert "No API key is asked for" in shown_text
    assert '"model":"nano"' in shown_text

    server.chat(max_tokens=3)
    browser.wait(lambda: browser.value("document.querySelector('#first').hidden"))


def test_more_requests_than_lanes(browser: chromium.Chromium, server: Server) -> None:
    """Those that run are shown before those that have ended; how many are left out is told."""
    browser.open(f"{server.url}/")
    browser.wait(lambda: shown(browser))
    names, left, legend = browser.value(
        "(lanes({now: 1000, requests: Array.from({length: 50}, (_, n) => ({id: `r${n}`, "
        "model: 'nano', state: n ? 'done' : 'decode', arrived: 950 + n / 10, "
        "started: 950 + n / 10, ended: n ? 990 : null, tokens: n, phases: []}))}), "
        "[[...document.querySelectorAll('#requests [role=img]')].map((one) => one.ariaLabel), "
        "byId('left').textContent, byId('legend').textContent])"
    )

    assert len(names) == 40
    assert names[0] == "r0 · nano · decode, 0 tokens"
    assert names[1].startswith("r49 ")
    assert left == "10 more requests are not shown."
    assert "not known" in legend


def test_with_a_key(browser: chromium.Chromium, start: Callable[..., Server]) -> None:
    """The page opens without one, shows nothing, and asks for it; numbers need it."""
    server = start(keys=(KEY,))
    server.wait()
    assert server.client.get("/status.json").status_code == 401
    assert server.client.get("/metrics").status_code == 401
    browser.open(f"{server.url}/")
    browser.wait(lambda: not browser.value("document.querySelector('#ask').hidden"))
    assert not shown(browser)
    assert browser.value("document.querySelector('#figures').childElementCount") == 0

    browser.value(f"document.querySelector('#key').value = '{KEY}'")
    browser.click("#ask button")
    browser.wait(lambda: shown(browser))
    assert browser.value("document.querySelector('#ask').hidden")


def test_a_page_of_another_name_sees_nothing(server: Server) -> None:
    """A name that was bent to this machine gets neither the page nor its numbers."""
    for path in ("/", "/status.json", "/metrics"):
        assert server.client.get(path, headers={"Host": "evil.example"}).status_code == 403
