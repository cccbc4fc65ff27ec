"""``triplepoint serve``: models over HTTP, for clients of OpenAI's and Anthropic's formats."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from ...arguments import read_text
from ...errors import SettingError
from ..config import default_model
from ..engine.engine import Engine, resolve_model
from ..gguf.open import open_gguf
from ..models import architecture_of
from ..serve.settings import KEEP_ALIVE_S, PORT, Limits, ServerSettings, parse_keep_alive
from .agent_options import harness_given
from .exit_codes import Exit
from .load_engine import load_calibrated, model_path
from .options import apply_config
from .output import Output

_MOST_TEXT = 1 << 20  # bytes of a file of keys, and of a system prompt


def run(args: argparse.Namespace, output: Output) -> int:
    """Serve until a signal arrives."""
    from ..serve.app.run import serve

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
