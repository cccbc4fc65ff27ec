"""Parameters of other services: read as ours, ignored with a note, or refused by name.

One table serves all formats. A parameter of that name in the format itself comes first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from ..http.api_error import APIError, unsupported
from ..http.notes import note

Ways = Callable[[Any], list[dict[str, Any]]]
"""Returns equivalent parameters for a value, of which a format takes the first that it has."""


def _effort(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, Mapping):  # {"type": "disabled"}, {"effort": "high"}, {"enabled": false}
        on = value.get("type") != "disabled" and value.get("enabled") is not False
        value = value.get("effort", on)
    effort = {True: "medium", False: "none"}.get(value, value)
    thinking = {"type": "disabled" if effort == "none" else "enabled"}
    return [{"reasoning_effort": effort}, {"reasoning": {"effort": effort}}, {"thinking": thinking}]


def _budget(value: int) -> list[dict[str, Any]]:
    if value == -1:
        return [{}]
    thinking = {"type": "enabled", "budget_tokens": value} if value else {"type": "disabled"}
    return [{"reasoning_budget": value}, {"thinking": thinking}]


def _schema(value: Any) -> list[dict[str, Any]]:
    schema = {"type": "object"} if value in ("json", True) else value
    schema = json.loads(schema) if isinstance(schema, str) else schema
    form = {"format": {"type": "json_schema", "name": "answer", "schema": schema}}
    return [{"json_schema": schema}, {"text": form}, {"output_config": form}]


def _choice(value: list[str]) -> list[dict[str, Any]]:
    quoted = (json.dumps("" + one, ensure_ascii=False) for one in value)
    return [{"grammar": f"root ::= {' | '.join(quoted)}"}]


def _structured(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{f"guided_{k}": v for k, v in value.items() if v not in (None, False)}]


SYNONYMS = {
    **{"n_cmpl": "n", "logprobs": "n_probs", "repetition_penalty": "repeat_penalty"},
    **{"max_completion_tokens": "max_tokens", "max_new_tokens": "max_tokens"},
    **{"guided_grammar": "grammar"},
}
BUDGETS = "reasoning_budget reasoning_budget_tokens thinking_budget_tokens thinking_token_budget"
READ_AS: dict[str, Ways] = {
    **{name: lambda value, own=own: [{own: value}] for name, own in SYNONYMS.items()},
    "num_predict": lambda n: [{"n_predict": max(n, -1)}, {"max_tokens": n}],
    "options": lambda value: [{**value}],
    **dict.fromkeys(BUDGETS.split(), _budget),
    **dict.fromkeys(("think", "enable_thinking", "thinking", "reasoning"), _effort),
    **dict.fromkeys(("guided_json", "guided_json_object", "format"), _schema),
    "guided_regex": lambda v: [{"grammar": "/" + re.sub(r"^\^|(?<!\\)\$$", "", v) + "/"}],
    "guided_choice": _choice,
    "structured_outputs": _structured,
}
IGNORED: dict[str, str] = {  # the reason, and the names
    "it only steers other services": "provider route models usage store user metadata request_id "
    "safety_identifier kv_transfer_params guided_decoding_backend mm_processor_kwargs",
    "there is one class of service": "service_tier priority",
    "prefixes are always cached, for each key": "cache_salt cache_control id_slot prompt_cache_key "
    "prompt_cache_retention prompt_cache_options",
    "the server decides how long a model stays (--keep-alive)": "keep_alive",
    "the context is set at startup (--context)": "num_ctx num_keep",
    "the server decides how a model runs": "num_thread num_gpu main_gpu num_batch low_vram f16_kv "
    "numa use_mmap use_mlock backend_sampling t_max_prompt_ms",
    "nothing here reads it": "length_penalty early_stopping spaces_between_special_tokens",
}
REFUSED: dict[str, tuple[str, Any]] = {  # the reason, and the values that change nothing
    "skip_special_tokens": ("control tokens are never part of a text", [True]),
    "use_beam_search": ("there is no beam search", [False]),
    "include_stop_str_in_output": ("a text ends before its stop", [False]),
    "include_reasoning": ("thinking is always part of an answer", [True]),
    "verbosity": ("the model decides how much it writes", ["medium"]),
    "modalities": ("these models write only text", [["text"]]),
    "reasoning_format": ("thinking is returned by itself", ["auto", "deepseek"]),
    **dict.fromkeys(("n_keep", "n_discard", "n_cache_reuse"), ("nothing is shifted", [0])),
    **dict.fromkeys(("verbose", "reasoning_control", "lora"), ("it is not here", [False])),
    "parse_tool_calls": ("calls are always parsed", [True]),
}
_REASONS = {name: reason for reason, names in IGNORED.items() for name in names.split()}
_FOREIGN = {*READ_AS, *REFUSED, *_REASONS}


def translated(value: Mapping[str, Any], names: AbstractSet[str]) -> dict[str, Any]:
    """Translate foreign parameters of a request into those of a format, which are `names`.

    Raises:
        APIError: a parameter is refused, or its value has no meaning; names it.
    """
    made: dict[str, Any] = {}
    pending = list(value.items())
    for name, given in pending:  # which grows
        if name in names or name not in _FOREIGN:
            if given != [] or name in names:  # an empty list of what is not here asks for nothing
                made.setdefault(name, given)
        elif given in (None, "", []):
            continue
        elif name in READ_AS:
            pending += _read_as(name, given, names).items()
        elif name in REFUSED:
            why, usual = REFUSED[name]
            if not any(given == one and (given is True) == (one is True) for one in usual):
                raise unsupported(name, f"by this server with this value: {why}")
        elif given and given not in ("auto", "default"):
            note(f"'{name}' is ignored: {_REASONS[name]}")
    return made


def _read_as(name: str, given: Any, names: AbstractSet[str]) -> dict[str, Any]:
    try:
        found = READ_AS[name](given)
    except (AttributeError, TypeError, ValueError):
        raise APIError(f"Invalid '{name}': {json.dumps(given):.100}.", param=name) from None
    # Only what holds parameters may become other foreign ones: it is smaller each time.
    known = names | _FOREIGN if name in ("options", "structured_outputs") else names
    way = next((way for way in found if not way or way.keys() & known), None)
    if way is None:
        raise unsupported(name, "at this path")
    if way:
        note(f"'{name}' is read as {', '.join(map(repr, way))}")
    return way
