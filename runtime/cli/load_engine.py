"""Options of a model, and loading of the engine that they describe."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...jit.kv_formats import KV_FORMATS
from ..cgroups import require_address_space
from .option_groups import OptionGroup, Section, option
from .output import Output, read_answer
from .progress_bars import Bars
from .pulling import choices_shown, pull_model

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..remote import RemoteEngine

MODEL = "a GGUF file, a pulled alias or ORG/NAME[:QUANT], nano, or synthetic:…"
JUMP = "jump_forward"
AUTO = ("auto", "auto")
"""Default source and number of drafted tokens."""
DEFAULT_MODEL = "default: what `triplepoint use` set, else nano"


ENGINE = "model and engine"
"""The title of the group of options that say which model is run, and how."""


def nbytes(text: str) -> int:
    """Parse a size such as 4GB, 512MB, 1.5GiB or a plain number of bytes, into bytes."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(i?)b?", text.strip().lower())
    size = 0.0
    if match:
        power = " kmgt".index(match[2] or " ")
        size = float(match[1]) * (1024 if match[3] else 1000) ** power
    if not 1 <= size < 2**63:  # also what is too large for a float: infinity
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 4GB or 512MB")
    return int(size)


def named(text: str) -> str:
    """Parse a model name; refuse an empty one, such as from an unset shell variable."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def draft(text: str) -> tuple[str, int | str]:
    """Parse the source and number of drafted tokens, as `SpeculativeConfig` takes them."""
    from ..engine.drafting.config import SOURCES

    source, _, count = text.partition(":")
    if source not in SOURCES:
        source, count = "auto", text
    if count in ("auto", "", "off") and text:
        return source, 0 if count == "off" else "auto"
    if not (count.isascii() and count.isdigit() and int(count) <= 16):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not auto, off, a number up to 16, {' or '.join(SOURCES)}"
        )
    return source, int(count)


def setting(text: str) -> tuple[str, str]:
    """Parse a setting of passes, KEY=VALUE; loading the model validates it."""
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as chunk=512")
    if key == JUMP and value not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"{key} is on or off, not {value!r}")
    return key, value


class OnOff(argparse.BooleanOptionalAction):
    """A flag ``--name`` or ``--no-name``, which the usage writes as one."""

    def format_usage(self) -> str:
        """Write both forms in a few columns."""
        return f"--[no-]{self.option_strings[0].removeprefix('--')}"


class EngineOptions(OptionGroup):
    """Options of the model and its engine."""

    title = Section(ENGINE)
    model: str | None = option("-m", "MODEL", type=named, help=f"{MODEL} ({DEFAULT_MODEL})")
    threads: int | None = option("-t")
    """number of threads (default: as many as are fastest, up to the physical cores)"""
    target: str | None = option("T")
    """CPU target, e.g. avx2 (default: the best one)"""
    kv: str | None = option(choices=KV_FORMATS)
    """KV cache format (default: bf16)"""
    kv_memory: int | None = option("SIZE", type=nbytes)
    """memory for all KV caches, e.g. 4GB (default: three quarters of free memory)"""
    cache_packed_weights: bool | None = option(action=OnOff)
    """keep the packed weights on disk and map them on later runs (default: where disk and file
    system suit)"""
    tune: list[tuple[str, str]] | None = option("KEY=VALUE", action="append", type=setting)
    """override a setting that is otherwise chosen automatically: chunk=512, kv_split=off,
    spin=300us, tile=8, max_single_tile=9, pages=off, head_bound=off, adaptive=off,
    jump_forward=off; repeatable"""
    context: int | None = option()
    """context length in tokens (default: the model's, at most 32,768)"""
    draft: tuple[str, int | str] = option("HOW", type=draft, default=AUTO)
    """tokens to draft per pass: auto, off, or a number up to 16; from the context (lookup) or the
    model's MTP head (mtp) alone, also as mtp:4 (default: auto)"""


def engine_options(
    model: str = DEFAULT_MODEL, *, context: bool = True, several: bool = False
) -> type[OptionGroup]:
    """Return the option group of a model and its engine.

    Args:
        model: which one is taken where none is named.
        context: whether the length of the context may be chosen, and how it is decoded.
        several: whether there may be several models.
    """
    settings = {"help": f"{MODEL} ({model})", "action": "append" if several else "store"}
    return EngineOptions.omit(*() if context else ("context", "draft")).but(model=settings)


def flags_set(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return the flags of those of the named options that the command line sets."""
    found = [name for name in names if getattr(args, name) not in (None, False, AUTO)]
    return [f"--{name.replace('_', '-')}" for name in found]


def decoding_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the tuning, drafting and jump-forward arguments of `Engine.load`."""
    tune = dict(getattr(args, "tune", None) or ())
    jump = tune.pop(JUMP, "on") == "on"
    source, tokens = getattr(args, "draft", AUTO)
    return {"tune": tune, "jump_forward": jump, "draft_tokens": tokens, "draft_source": source}


def load_calibrated(args: argparse.Namespace, output: Output, model: str | None = None) -> Engine:
    """Load the engine of the options, or of `model`; calibrate it unless it is calibrated."""
    from ..physics.calibration import busy

    if model is not None:
        args = argparse.Namespace(**{**vars(args), "model": model})
    engine = load_engine(args, output)
    known = engine.loaded.calibration
    if known is None or busy(known, engine.machine):
        from ..engine.engine_timer import EngineTimer
        from ..physics.calibrate import quick_calibrate

        quick_calibrate(EngineTimer(engine))
    return engine


def load_model(args: argparse.Namespace, output: Output) -> Engine | RemoteEngine:
    """Load an agent's model in this process, or connect to a server if its name is a URL.

    ``http://localhost:8080/v1`` takes the server's first model, ``…/v1#NAME`` the one of that name.
    """
    if not is_server(choose_model(args)):
        if getattr(args, "show_prompt", False):
            return load_engine(args, output)
        return load_calibrated(args, output)  # for the predictions in its traces
    from ..remote import RemoteEngine
    from ..remote.engine import CONTEXT

    address, _, name = args.model.partition("#")
    key = os.environ.get("TRIPLEPOINT_API_KEY")
    return RemoteEngine(address, model=name or None, api_key=key, context=args.context or CONTEXT)


def is_server(model: str) -> bool:
    """Return whether a name is the URL of a server; URLs of pages on the Hub are not."""
    from ..hub.names import is_hub_name

    return model.startswith(("http://", "https://")) and not is_hub_name(model)


def choose_model(args: argparse.Namespace) -> str:
    """Return the model of the arguments; without one, set them to the default model."""
    if not args.model:
        from ..config import default_model

        chosen = default_model()
        args.model, args.chosen_by = chosen.value, chosen.source
    return args.model


def _chosen_path(args: argparse.Namespace, output: Output) -> str | Path:
    """Return `model_path` of the chosen model; errors name the source of a default model."""
    name = choose_model(args)
    if not (source := getattr(args, "chosen_by", "")):
        return model_path(name, output)
    from ..engine.engine import resolve_model

    try:
        return resolve_model(model_path(name, output))
    except ModelError as error:
        raise ModelError(f"{error} (the default model, from {source})") from error


def load_engine(args: argparse.Namespace, output: Output) -> Engine:
    """Load the model with the requested threads, target, KV format and context."""
    if "numpy" not in sys.modules:
        require_address_space(320_000_000, "importing numpy and LLVM")
    from ..engine.engine import Engine

    with output.progress:
        engine = Engine.load(
            _chosen_path(args, output),
            threads=args.threads,
            target=args.target,
            kv=args.kv or "bf16",
            context=getattr(args, "context", None),
            progress=output.progress.loading,
            cache_packed_weights=getattr(args, "cache_packed_weights", None),
            kv_memory=getattr(args, "kv_memory", None),
            **decoding_of(args),
        )
    if engine.loaded.packed_cache and engine.loaded.packed_cache.refused:
        output.note(f"{engine.loaded.packed_cache.refused}; packed again")
    return engine


def model_path(model: str, output: Output) -> str | Path:
    """Return the file of a pulled model, checked; return any other name unchanged.

    On a terminal, offer to pull a missing model.

    Raises:
        ModelError: the model is not in the cache, or damaged, or it is not clear which is meant.
    """
    from ..config import BUILT_IN

    if model == BUILT_IN:
        return model
    from ..hub.names import is_hub_name, parse_name

    if not is_hub_name(model) or os.path.exists(os.path.expanduser(model)):
        return model
    from ..hub.find import NotPulledError, find
    from ..hub.settings import HubSettings

    name, settings = parse_name(model), HubSettings.from_environ()
    try:
        with choices_shown(output), Bars(output, bars=settings.bars) as bars:
            return find(name, settings, bars).paths[0]
    except NotPulledError:
        if settings.offline or not _agrees(f"{name} is not downloaded yet. Pull it now?", output):
            raise
    return pull_model(name, settings, output, force=False, hint=False)


def _agrees(question: str, output: Output) -> bool:
    """Ask on a terminal, with yes as the default; return False elsewhere."""
    if not output.can_ask:
        return False
    output.end_line()
    answer = read_answer(f"{question} [Y/n]")
    return answer.strip().lower() in ("", "y", "yes") if answer else False
