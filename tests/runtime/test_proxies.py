"""What errors show of a proxy."""

from __future__ import annotations

import pytest

from triplepoint.runtime.proxies import through_proxy


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://me:secret@proxy:3128"}, " through the proxy http://proxy:3128"),
        ({"ALL_PROXY": "proxy:3128"}, " through the proxy http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "hub.test"}, ""),
        ({"HTTP_PROXY": "http://proxy:3128"}, ""),
    ],
)
def test_an_error_names_the_proxy(
    environ: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that the environment has for an address, without its password."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert through_proxy("https://hub.test/api") == expected
