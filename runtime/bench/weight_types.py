"""One model in several types: size, error, perplexity and speed.

All are made from the same file and loaded together; rounds of decodes come in turns, so that a
machine that changes its speed changes it for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import SettingError
from ..engine.engine import Engine
from ..engine.engine_timer import EngineTimer
from ..evaluate.perplexity import Perplexity, perplexity, text_ids
from ..gguf.open import open_gguf
from ..memory import available_bytes
from ..physics.timed_passes import Case
from ..quantize.error import weight_error
from ..quantize.quantize import quantize, row_maker

CHUNK = 512  # tokens of a chunk of the text
_MEMORY = 1.3  # of a file's size: its packed weights, and what an engine has beside them


@dataclass
class TypeResult:
    """The measurements of one type.

    Attributes:
        name: of the mix, empty for the model as it is; error: `weight_error` from the model as it
            is; perplexity: on the text, with the divergence from the model as it is.
        rates: tokens/s of each round's decode.
    """

    name: str
    nbytes: int
    parameters: int
    error: float = 0.0
    perplexity: Perplexity | None = None
    rates: list[float] = field(default_factory=list)


def compare_types(
    base: Engine,
    kinds: Sequence[str],
    folder: Path,
    load: Callable[[Path], Engine],
    *,
    tokens: int,
    repeat: int,
    text: str | None = None,
    max_chunks: int | None = None,
) -> Iterator[TypeResult]:
    """Quantize the model of `base` into `folder` in each of `kinds`, and measure all of them.

    The first result is that of `base`. load: loads a file as `base` was loaded; tokens: of each
    timed decode; text: path of a text to compute the perplexity on, in chunks of `CHUNK` tokens.

    Raises:
        SettingError: a kind is unknown, or there is too little memory to load all of them.
        ModelError: a type cannot be made, or the text is too short.
    """
    case, source = Case(generate=tokens), base.model.path
    ids = text_ids(text, base.tokenizer) if text is not None else None
    paths = [folder / f"{kind}.gguf" for kind in kinds]
    found = [TypeResult("", base.model.nbytes, base.model.parameters)]
    for kind, path in zip(kinds, paths, strict=True):
        quantize(source, path, kind, threads=base.threads)
        with open_gguf(source) as one, open_gguf(path) as other, row_maker(base.threads) as maker:
            error = weight_error(one, other, maker)
        found.append(TypeResult(kind.upper(), 0, base.model.parameters, error))
    needed, free = _MEMORY * sum(path.stat().st_size for path in paths), available_bytes()
    if needed > free:
        raise SettingError(
            f"{len(kinds)} types need about {needed / 1e9:.1f} GB of memory together, and "
            f"{free / 1e9:.1f} GB are free; name fewer of them"
        )
    with ExitStack() as stack:
        engines = [base, *(stack.enter_context(load(path)) for path in paths)]
        timers = [EngineTimer(engine, [case]) for engine in engines]
        for turn in range(repeat + 1):
            for result, timer in zip(found, timers, strict=True):
                seconds = timer.measure(case)
                if turn:  # the first warms up
                    result.rates.append(tokens / seconds)
        for result, engine in zip(found, engines, strict=True):
            result.nbytes = engine.model.nbytes
            if ids is not None:
                other = base if engine is not base else None
                result.perplexity = perplexity(
                    engine, ids, CHUNK, base=other, max_chunks=max_chunks
                )
            yield result
