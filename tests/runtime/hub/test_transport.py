"""What is asked of a Hub before any file: where the question may go, and how long the answer is."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.fake_hub import HURRIED, ONE, TOKEN, FakeHub

from triplepoint.errors import ModelError
from triplepoint.runtime.hub import transport
from triplepoint.runtime.hub.pull import pull
from triplepoint.runtime.hub.settings import HubSettings
from triplepoint.runtime.hub.transport import Hub, RetryPolicy, TransientError


def test_a_listing_is_not_fetched_from_inside(
    hub: FakeHub, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A public Hub that redirects the question into this network is refused, as for files."""
    monkeypatch.setattr(transport, "is_private", lambda host: host == "localhost")
    inside = hub.url.replace("127.0.0.1", "localhost")
    hub.api_faults.append(f"to:{inside}/secret")

    with pytest.raises(ModelError, match="private network; the redirect was not followed"):
        pull(ONE, settings, patience=HURRIED)

    assert [path for path, _, _ in hub.asked] == ["/api/models/org/one/revision/main"]


def test_a_renamed_repository_is_found(hub: FakeHub, settings: HubSettings) -> None:
    """The Hub redirects to the new name, and the token goes along: it is the same host."""
    hub.repos["new/name"] = hub.repos["org/one"]
    hub.api_faults.append("to:/api/models/new/name/revision/main?blobs=true")
    asker = Hub(dataclasses.replace(settings, token=TOKEN), HURRIED)

    assert asker.model(ONE).sha == hub.repos["org/one"].commit
    assert [token for _, _, token in hub.asked] == [f"Bearer {TOKEN}"] * 2


def test_a_listing_that_drips_ends(hub: FakeHub, settings: HubSettings, recorder: Any) -> None:
    """A server that sends a byte now and then is hung up on, and asked again."""
    hub.api_faults.append("drip")

    assert pull(ONE, settings, recorder, patience=HURRIED).fetched
    assert "bytes arrived in" in recorder.notes[0]


def test_a_listing_that_is_compressed(hub: FakeHub, settings: HubSettings) -> None:
    """A mirror that compresses without being asked is understood."""
    hub.api_faults.append("gzip")

    assert pull(ONE, settings, patience=HURRIED).fetched


def test_a_listing_without_end(
    hub: FakeHub, settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is read up to a size, and no more of it kept."""
    monkeypatch.setattr(transport, "_LARGEST_ANSWER", 1 << 20)
    hub.api_faults.append(" " * (3 << 20))

    with pytest.raises(ModelError, match="answers with more than 1 MiB"):
        pull(ONE, settings, patience=HURRIED)


def test_the_endpoint_is_known_however_it_is_written(settings: HubSettings) -> None:
    """Capitals and the usual port are the same host; another port or scheme is not."""
    hub = Hub(dataclasses.replace(settings, endpoint="https://Mirror.example"))

    assert hub.is_endpoint("https://mirror.example:443/x")
    assert not hub.is_endpoint("https://mirror.example:444/x")
    assert not hub.is_endpoint("http://mirror.example/x")


@pytest.mark.parametrize("endpoint", ["http://[x", "mirror.example", "ftp://a.b", "https://a:b"])
def test_an_endpoint_that_is_no_address(endpoint: str, settings: HubSettings) -> None:
    """It is said at once, with the variable to set."""
    with pytest.raises(ModelError, match=r"is not a URL; set HF_ENDPOINT to one such as https://"):
        pull(ONE, dataclasses.replace(settings, endpoint=endpoint), patience=HURRIED)


def test_a_password_of_the_endpoint_is_not_shown(settings: HubSettings) -> None:
    """Messages name the host only."""
    secret = dataclasses.replace(settings, endpoint="http://me:hunter2@127.0.0.1:9")

    with pytest.raises(ModelError, match=r"cannot ask http://127\.0\.0\.1:9 for") as caught:
        pull(ONE, secret, patience=HURRIED)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("HF_HUB_DOWNLOAD_TIMEOUT", "7.5", "HF_HUB_DOWNLOAD_TIMEOUT and .* must be whole seconds"),
        ("SSL_CERT_FILE", "/nonexistent", "cannot load the certificates .*check SSL_CERT_FILE"),
        ("HF_HOME", "~no-such-user/x", "no home folder for ~no-such-user/x; set HOME, or"),
    ],
)
def test_variables_that_cannot_be_used(
    variable: str, value: str, message: str, tmp_path: Path
) -> None:
    """They are named; the libraries that read them say something else, or nothing."""
    code = (
        "from triplepoint.errors import TriplepointError\n"
        "from triplepoint.runtime.hub.settings import HubSettings\n"
        "from triplepoint.runtime.hub.transport import Hub\n"
        "try: Hub(HubSettings.from_environ())\n"
        "except TriplepointError as error: print(error)\n"
    )
    environ = os.environ | {"HF_ENDPOINT": "https://127.0.0.1:9", variable: value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, cwd=tmp_path
    )

    assert done.stderr == ""
    assert re.search(message, done.stdout), done.stdout


def test_a_pull_through_a_dead_proxy(
    settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the proxy, not only the Hub that is not to blame."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    away = dataclasses.replace(settings, endpoint="http://hub.test")
    hub = Hub(away, RetryPolicy(pause_s=0.0))
    with pytest.raises(TransientError, match=r"through the proxy http://127\.0\.0\.1:9: "):
        hub.repositories(1)
