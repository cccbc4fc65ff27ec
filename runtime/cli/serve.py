"""``triplepoint serve``: models over HTTP, for clients of OpenAI's and Anthropic's formats."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...arguments import read_text
from ...errors import SettingError
from .agent_options import AgentOptions, harness_given, trace
from .arguments import whole
from .exit_codes import Exit
from .load_engine import DEFAULT_MODEL, engine_options, load_calibrated, model_path, nbytes
from .option_groups import OptionGroup, Section, option
from .options import apply_config
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.engine import Engine


_MOST_TEXT = 1 << 20  # bytes of a file of keys, and of a system prompt


def _port(text: str) -> int:
    return whole(text, "a port from 0 to 65535", lambda number: number < 2**16)


def _nbytes_or_none(text: str) -> int:
    """Parse a size; return 0 for ``off``."""
    return 0 if text == "off" else nbytes(text)


class ServeOptions(OptionGroup):
    """What is served, where and to whom, and what is recorded."""

    served = Section("served models")
    alias: list[str] | None = option("NAME=MODEL")
    """another name for a served model or agent; repeatable"""
    default_model: str | None = option("NAME")
    """the served model that answers requests that name none or an unknown one (default: the first;
    with several models, unknown names are refused)"""
    keep_alive: str | None = option("TIME")
    """unload a model after this time without a request, e.g. 30m, 2h, forever (default: 30m)"""
    memory: int | None = option("SIZE", type=nbytes)
    """memory for the weights of all loaded models together; one model is always loaded (default:
    what is free at startup)"""
    pooling: str | None = option(choices=("none", "mean", "cls", "last"))
    """how to pool token states into embeddings (default: as the model file says)"""
    agents: list[str] = option("DIR", nargs="+", default=())
    """offer an agent for each folder, as the model agent:NAME"""

    reached = Section("address and access")
    host: str = option("HOST", default="127.0.0.1")
    """address to listen on"""
    port: int | None = option("N", type=_port)
    """port to listen on (default: 11435)"""
    api_key: list[str] | None = option("KEY")
    """require this API key; repeatable"""
    api_key_file: str | None = option("FILE")
    """file of API keys, one per line, as KEY or NAME KEY; keeps keys out of the process list"""
    operator_key_file: str | None = option("FILE")
    """file of operator keys, one per line; then only these open /metrics and the status page's
    data"""
    public_prefix: list[str] | None = option("FILE")
    """file with a system prompt whose cached prefix all keys share; repeatable"""
    allow_host: list[str] | None = option("NAME")
    """accept requests for this host name too; repeatable"""
    allow_origin: list[str] | None = option("URL")
    """accept requests from web pages at this origin; repeatable"""

    limits = Section("load")
    parallel: int = option(default=32)
    """maximum number of concurrent requests"""
    queue: int = option(default=256)
    """maximum number of queued requests"""
    keep_responses: int = option("SIZE", type=_nbytes_or_none, default=64 << 20)
    """memory per key for responses that previous_response_id can name; off keeps none (default:
    64MB)"""

    recorded = Section("trace")
    trace: str | bool | None = option("WHERE", type=trace)
    """trace folder, or off (default: served, in the state folder)"""
    trace_requests: str = option(choices=("errors", "all"), default="errors")
    """which requests to trace"""
    trace_limit: int = option("SIZE", type=nbytes, default=10**9)
    """maximum size of that folder; the oldest traces are removed (default: 1GB)"""
    otlp: str | None = option("URL")
    """send request spans to this OTLP endpoint, such as http://127.0.0.1:4318/v1/traces"""
    otlp_metrics: str | None = option("URL")
    """send request metrics to this OTLP endpoint, such as http://127.0.0.1:4318/v1/metrics"""
    otlp_content: bool = option()
    """include questions and answers in the spans"""


OPTIONS = (
    engine_options(f"{DEFAULT_MODEL}; repeatable, also as NAME=MODEL", several=True),
    *(ServeOptions, AgentOptions.only("harness", "grounded")),
)


def run(args: argparse.Namespace, output: Output) -> int:
    """Serve until a signal arrives."""
    from ..serve.app.run import serve
    from ..serve.settings import KEEP_ALIVE_S, PORT, Limits, ServerSettings, parse_keep_alive

    apply_config(args, "threads", "kv")
    keys = dict.fromkeys(args.api_key or (), "") | _keys(args.api_key_file)
    operators = _keys(args.operator_key_file)
    settings = ServerSettings(
        models=named_models(args.model, output),
        default_model=args.default_model,
        aliases=dict(one.partition("=")[::2] for one in args.alias or ()),
        host=args.host,
        port=PORT if args.port is None else args.port,
        keys=tuple(keys),
        key_names={key: name for key, name in (keys | operators).items() if name},
        operator_keys=tuple(operators),
        public=tuple(map(_text, args.public_prefix or ())),
        hosts=tuple(args.allow_host or ()),
        origins=tuple(args.allow_origin or ()),
        keep_alive_s=parse_keep_alive(args.keep_alive) if args.keep_alive else KEEP_ALIVE_S,
        memory=args.memory,
        pooling=args.pooling,
        agents=_agents(args.agents),
        agent_options={"harness": harness_given(args.harness), "grounded": args.grounded},
        trace="off" if args.trace is False else args.trace_requests,
        otlp=args.otlp,
        otlp_metrics=args.otlp_metrics,
        otlp_content=args.otlp_content,
        trace_folder=Path(args.trace) if args.trace else None,
        trace_bytes=args.trace_limit,
        limits=Limits(parallel=args.parallel, queue=args.queue, response_bytes=args.keep_responses),
    )

    def load(source: str) -> Engine:
        return load_calibrated(args, output, source)  # the scheduler's clock

    def started(address: str) -> None:
        output.aside.line(f"serving {', '.join(settings.models)} at {address}/v1")
        if len(keys) > 1 and not operators:
            output.aside.line(
                "every key can see the metrics of all requests (/metrics, /slots, the page at "
                "/); use --operator-key-file to restrict them"
            )
        output.json({"url": f"{address}/v1", "models": list(settings.models)})

    serve(settings, load, started)
    return Exit.OK


def named_models(given: Sequence[str] | None, output: Output) -> dict[str, str]:
    """Return the name and file of each model; raise now if one is missing or cannot run.

    Raises:
        SettingError: two have the same name.
        ModelError: there is no such model.
    """
    from ..config import default_model
    from ..engine.engine import resolve_model
    from ..gguf.open import open_gguf
    from ..models import architecture_of

    models: dict[str, str] = {}
    for text in given or [default_model().value]:
        found = re.fullmatch(r"([\w.:-]+)=(.+)", text)
        source = found[2] if found else text
        path = str(resolve_model(model_path(source, output)))
        with open_gguf(path) as gguf:
            architecture_of(gguf)
        name = found[1] if found else _name_of(source)
        if name in models:
            raise SettingError(f"two models have the name {name}; rename one: NAME={source}")
        models[name] = path
    return models


def _agents(folders: Sequence[str]) -> dict[str, Path]:
    """Return the name and folder of each agent.

    Raises:
        SettingError: two have the same name.
    """
    agents: dict[str, Path] = {}
    for folder in folders:
        path = Path(folder).resolve()
        name = f"agent:{path.name}"
        if name in agents:
            raise SettingError(f"two agents would have the name {name}: {agents[name]} and {path}")
        agents[name] = path
    return agents


def _name_of(source: str) -> str:
    """Return the served name of a model without a given one: its own, or its file's stem."""
    return Path(source).stem if source.endswith(".gguf") else source


def _keys(path: str | None) -> dict[str, str]:
    """Read API keys and their names from a file; the name is "" where a key has none.

    Raises:
        SettingError: the file holds none, or a line that is no key.
    """
    if path is None:
        return {}
    keys: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        parts = line.split()
        if len(parts) > 2:
            raise SettingError(f"{path}:{number}: expected KEY or NAME KEY")
        if parts:
            keys[parts[-1]] = parts[0] if len(parts) == 2 else ""
    if not keys:
        raise SettingError(f"{path} holds no key")
    return keys


def _text(path: str) -> str:
    """Read a file's text.

    Raises:
        SettingError: it cannot be read, is too large, or is no UTF-8.
    """
    try:
        return read_text(path, _MOST_TEXT)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingError(f"cannot read {path}: {why}") from None
