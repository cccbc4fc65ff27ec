"""``triplepoint serve``: models over HTTP, for clients of OpenAI's and Anthropic's formats."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...arguments import read_text
from ...errors import SettingError
from .agent_options import add_harness_options, harness_given, trace
from .arguments import group_of
from .exit_codes import Exit
from .load_engine import DEFAULT_MODEL, add_engine_options, load_calibrated, model_path, nbytes
from .options import add_file, add_number, add_option, add_switch, apply_config
from .output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.engine import Engine


_MOST_TEXT = 1 << 20  # bytes of a file of keys, and of a system prompt


def add_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of a server."""
    add_engine_options(verb, model=f"{DEFAULT_MODEL}; repeatable, also as NAME=MODEL", several=True)
    models = group_of(verb, "served models")
    access = group_of(verb, "address and access")
    load = group_of(verb, "load")
    models.add_argument(
        "--alias",
        action="append",
        metavar="NAME=MODEL",
        help="another name for a served model or agent; repeatable",
    )
    models.add_argument(
        "--default-model",
        metavar="NAME",
        help="the served model that answers requests that name none or an unknown one (default: "
        "the first; with several models, unknown names are refused)",
    )
    add_option(access, "--host", default="127.0.0.1", metavar="HOST", help="address to listen on")
    access.add_argument(
        "--port", type=_port, metavar="N", help="port to listen on (default: 11435)"
    )
    access.add_argument(
        "--api-key", action="append", metavar="KEY", help="require this API key; repeatable"
    )
    add_file(
        access,
        "--api-key-file",
        help="file of API keys, one per line, as KEY or NAME KEY; keeps keys out of the process "
        "list",
    )
    add_file(
        access,
        "--operator-key-file",
        help="file of operator keys, one per line; then only these open /metrics and the status "
        "page's data",
    )
    access.add_argument(
        "--public-prefix",
        action="append",
        metavar="FILE",
        help="file with a system prompt whose cached prefix all keys share; repeatable",
    )
    access.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="accept requests for this host name too; repeatable",
    )
    access.add_argument(
        "--allow-origin",
        action="append",
        metavar="URL",
        help="accept requests from web pages at this origin; repeatable",
    )
    models.add_argument(
        "--keep-alive",
        metavar="TIME",
        help="unload a model after this time without a request, e.g. 30m, 2h, forever (default: "
        "30m)",
    )
    models.add_argument(
        "--memory",
        type=nbytes,
        metavar="SIZE",
        help="memory for the weights of all loaded models together; one model is always loaded "
        "(default: what is free at startup)",
    )
    add_number(load, "--parallel", default=32, help="maximum number of concurrent requests")
    add_number(load, "--queue", default=256, help="maximum number of queued requests")
    load.add_argument(
        "--keep-responses",
        type=_nbytes_or_none,
        default=64 << 20,
        metavar="SIZE",
        help="memory per key for responses that previous_response_id can name; off keeps none "
        "(default: 64MB)",
    )
    models.add_argument(
        "--pooling",
        choices=("none", "mean", "cls", "last"),
        help="how to pool token states into embeddings (default: as the model file says)",
    )
    models.add_argument(
        "--agents",
        nargs="+",
        metavar="DIR",
        default=(),
        help="offer an agent for each folder, as the model agent:NAME",
    )
    add_harness_options(verb)
    traces = group_of(verb, "trace")
    traces.add_argument(
        "--trace",
        type=trace,
        metavar="WHERE",
        help="trace folder, or off (default: served, in the state folder)",
    )
    add_option(
        traces,
        "--trace-requests",
        choices=("errors", "all"),
        default="errors",
        help="which requests to trace",
    )
    traces.add_argument(
        "--trace-limit",
        type=nbytes,
        default=10**9,
        metavar="SIZE",
        help="maximum size of that folder; the oldest traces are removed (default: 1GB)",
    )
    traces.add_argument(
        "--otlp",
        metavar="URL",
        help="send request spans to this OTLP endpoint, such as http://127.0.0.1:4318/v1/traces",
    )
    traces.add_argument(
        "--otlp-metrics",
        metavar="URL",
        help="send request metrics to this OTLP endpoint, such as http://127.0.0.1:4318/v1/metrics",
    )
    add_switch(traces, "--otlp-content", help="include questions and answers in the spans")


def _nbytes_or_none(text: str) -> int:
    """Parse a size; return 0 for ``off``."""
    return 0 if text == "off" else nbytes(text)


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


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)
