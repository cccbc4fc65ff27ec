"""llama-server's samplers, as its clients ask for them."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.serving import Server

from triplepoint.runtime.serve.wire.sampling_body import SamplingBody

URL = "/completion"
BODY: dict[str, Any] = {"prompt": "The log says", "n_predict": 24, "seed": 3, "temperature": 2.0}
USED: dict[str, dict[str, Any]] = {
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.01, "top_k": 40},
    "dry": {"temperature": 0, "dry_multiplier": 4.0, "dry_base": 3.0, "dry_allowed_length": 0,
            "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n"]},
    "dynamic": {"dynatemp_range": 1.9, "dynatemp_exponent": 2.0},
    "sigma": {"top_n_sigma": 1.0},
    "typical": {"typical_p": 0.2},
    "min_keep": {"temperature": 9.0, "top_p": 0.0, "min_keep": 3},
    "mirostat": {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    "mirostat-2": {"mirostat": 2.0, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
}  # fmt: skip
LAST = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]


@pytest.mark.parametrize("name", USED)
def test_it_is_done(server: Server, name: str) -> None:
    """The text is another one, the same each time, and the settings come back by their names."""
    used = USED[name]
    off = {key: value for key, value in used.items() if key in ("top_k", "temperature", "top_p")}
    one, again, without = (server.post(URL, {**BODY, **more}).json() for more in (used, used, off))
    assert one["content"] == again["content"] != without["content"]
    settings = one["generation_settings"]
    for key, value in used.items():
        assert settings[key] == (value or settings[key])
    chat = server.chat(**{**used, "seed": 3})
    assert chat.status_code == 200


def test_probabilities_after_them(server: Server) -> None:
    """`post_sampling_probs` tells what they have left, at each token's own position."""
    told = {**BODY, "n_probs": 10, "post_sampling_probs": True}
    for name in ("xtc", "typical", "mirostat-2", "min_keep"):
        answer = server.post(URL, {**told, **USED[name], "xtc_probability": 0.5}).json()
        assert (
            answer["content"]
            == server.post(URL, {**BODY, **USED[name], "xtc_probability": 0.5}).json()["content"]
        )
        for one in answer["completion_probabilities"]:
            assert one["prob"] > 0
            likely = {each["id"]: each["prob"] for each in one["top_probs"]}
            assert likely.get(one["id"], one["prob"]) == one["prob"]
            assert sum(likely.values()) <= 1.001


@pytest.mark.parametrize(
    ("name", "value"),
    [("typical_p", -1), ("xtc_probability", 2), ("xtc_threshold", -0.5), ("dry_multiplier", -1),
     ("dry_sequence_breakers", [""]), ("dry_sequence_breakers", "x"), ("dry_penalty_last_n", -2),
     ("mirostat", 3), ("mirostat", 1.5), ("mirostat_tau", -1), ("min_keep", -1),
     ("dynatemp_range", 1e9), ("adaptive_target", 0.5), ("samplers", ["frob"]),
     ("samplers", ["top_k", "top_k"]), ("samplers", ["top_k", "penalties"]), ("samplers", "kz"),
     ("samplers", [1])],
    ids=str,
)  # fmt: skip
def test_values_out_of_range(server: Server, name: str, value: Any) -> None:
    """They are refused by name."""
    answer = server.post(URL, {**BODY, name: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].split("[")[0] == name


def _body(**given: Any) -> Any:
    return SamplingBody(**given).sampling(None).filled()  # pyright: ignore[reportArgumentType]


def test_their_order() -> None:
    """As the list says, by any of their names; what is not in it is off."""
    used: dict[str, Any] = {"temperature": 0.8, "xtc_probability": 0.5, "dry_multiplier": 0.8}
    want = tuple(LAST[2:])
    for names in (LAST, "edskypmxt", [name.replace("_", "-").upper() for name in LAST]):
        assert _body(**used, samplers=names).order == want
    assert _body(**used).order == want
    assert _body(temperature=0.8, dry_multiplier=0.8).order[0] == "temperature"
    off = _body(**used, dynatemp_range=1.0, samplers=["nucleus", "top-k"])
    assert (off.order, off.dry, off.dynatemp_range) == (("temperature", "top_p", "top_k"), False, 0)
    assert (off.temperature, off.xtc_probability) == (1.0, 0.5)
    # what is off may stand anywhere
    assert _body(temperature=1.0, samplers=["xtc", "dry", "penalties", "temp"]).order == (
        "xtc", "temperature"
    )  # fmt: skip
    alone = _body(temperature=0.7, mirostat=2, samplers=["top_k"])
    assert (alone.temperature, alone.mirostat) == (0.7, 2)
    assert _body(typ_p=0.5).typical_p == 0.5
    assert (_body(dry_base=0.5).dry_base, _body(dynatemp_range=-1.0).dynatemp_range) == (1.75, 0)


def test_dry_comes_first(server: Server) -> None:
    """It is refused where it would have to look at what others have left."""
    order = {"dry_multiplier": 0.8, "samplers": ["top_k", "dry", "temperature"]}
    refused = server.post(URL, {**BODY, **order})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "samplers")
    assert server.post(URL, {**BODY, **order, "dry_multiplier": 0.0}).status_code == 200
