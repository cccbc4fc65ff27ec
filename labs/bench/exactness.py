"""usage: python -m labs.bench.exactness MODEL.gguf --texts FOLDER [--kv bf16 q8] [--llama PYTHON]

Measure how far logits are from the same weights in float32, and how far llama.cpp's are: mean and
median KL divergence, the share of equal top tokens, and perplexity, over all but the first token of
texts (`FOLDER/KIND-N.txt`; `python tests/helpers/texts.py FOLDER` writes some).

The reference is `transformers` in float32 on the dequantized weights. llama.cpp runs in PYTHON,
which has llama-cpp-python (`--llama`), or was measured before (`--recorded FILE`); `--record FILE`
adds what is measured to FILE. A ratio is of ours to llama.cpp's: the median of the texts' ratios,
and that of the means over all tokens, with its 95 % interval (texts drawn with replacement).

Products with 8-bit activations alone give some KL, and two engines that round alike differ by some
where sums are added in another order: hence the ratio, and the row of a float32 cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any

import numpy as np

from triplepoint import Engine
from triplepoint.runtime.engine.session import SCORE_CHUNK
from triplepoint.runtime.tokens.tokenizer import Tokenizer

from .divergence import (
    Figures,
    Rows,
    Score,
    compare,
    perplexity_change,
    ratio,
    read_record,
    scores,
    write_record,
)

TOKENS = 512  # of a text, unless it is shorter
CPUS = os.cpu_count() or 1


class Reference:
    """A GGUF file in float32 by `transformers`."""

    def __init__(self, path: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        self.torch = torch
        given = {"dtype": torch.float32, "gguf_file": path.name}
        self.network: Any = AutoModelForCausalLM.from_pretrained(path.parent, **given)

    def rows(self, ids: Sequence[int]) -> Rows:
        """Yield the logits after each token; up to the head they are computed in one pass."""
        with self.torch.inference_mode():
            hidden = self.network.model(self.torch.tensor([list(ids)]))[0][0]
            for part in hidden.split(SCORE_CHUNK):
                yield self.network.lm_head(part).numpy()


class OwnReference:
    """The engine itself with a float32 cache: what other caches cost alone, in long texts too."""

    def __init__(self, path: Path, context: int) -> None:
        self.engine = Engine.load(path, kv="f32", context=context)

    def rows(self, ids: Sequence[int]) -> Rows:
        """Yield the logits after each token."""
        with closing(self.engine.session()) as session:
            yield from session.scores(ids)


class LlamaCpp:
    """llama.cpp in an interpreter that has llama-cpp-python."""

    def __init__(
        self, python: str, path: Path, cache: str, context: int = TOKENS, threads: int = CPUS
    ) -> None:
        script = Path(__file__).with_name("llama_logits.py")
        command = [python, script, path, cache, str(context), str(threads)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        line = self._out.readline()
        if not line:
            self.close()
            raise SystemExit(f"{python} could not load {path} with llama-cpp-python (see above)")
        about = json.loads(line)
        self.version, self.n_vocab = f"llama-cpp-python {about['version']}", about["n_vocab"]

    @property
    def _out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def rows(self, ids: Sequence[int], position: int = 0) -> Rows:
        """Yield the logits after each token; position: of the first, behind what was read."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([position, list(ids)]).encode() + b"\n")
        self.process.stdin.flush()
        for start in range(0, len(ids), SCORE_CHUNK):
            count = min(SCORE_CHUNK, len(ids) - start)
            data = self._out.read(4 * self.n_vocab * count)
            yield np.frombuffer(data, np.float32).reshape(count, self.n_vocab)

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def tokens_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return a text's ids, behind the one that begins a text where the model wants it."""
    ids = tokenizer.encode(text)
    return [tokenizer.bos, *ids] if tokenizer.add_bos and tokenizer.bos is not None else ids


def measure(
    reference: Reference | OwnReference,
    engines: Mapping[str, Engine],
    peers: Mapping[str, LlamaCpp],
    texts: Mapping[str, str],
    tokens: int = TOKENS,
) -> Iterator[tuple[str, dict[str, Score], dict[str, Figures]]]:
    """Yield each text's name, the scores of engines and peers, and the figures of its tokens.

    tokens: maximum of a text that are read.
    """
    tokenizer = next(iter(engines.values())).tokenizer
    for text, words in texts.items():
        ids = tokens_of(tokenizer, words)[:tokens]
        with ExitStack() as stack:
            got: dict[str, Rows] = {
                name: stack.enter_context(closing(engine.session())).scores(ids)
                for name, engine in engines.items()
            }
            got |= {name: peer.rows(ids) for name, peer in peers.items()}
            found = compare(ids, reference.rows(ids), got)
        yield text, scores(ids, found), found


def summary(name: str, found: Sequence[Score], peer: Sequence[Score]) -> str:
    """Describe an engine's distance over texts, and its ratio to a peer's, if there is one."""
    tokens = np.array([one.tokens for one in found])
    mean = float(tokens @ [one.kl for one in found]) / tokens.sum()
    top = sum(one.same for one in found) / tokens.sum()
    line = f"{name:14s} mean KL {mean:.2e}, top-1 {top:.2%} of {tokens.sum():,}"
    line += f", perplexity {perplexity_change(found):+.3%}"
    if peer and peer is not found:
        r = ratio(found, peer)
        line += f"; ratio by text {r.median:.3f}, of means {r.mean:.3f}"
        line += f" ({r.low:.3f} to {r.high:.3f})"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of a text (default: 512)")
    parser.add_argument("--own", action="store_true", help="the reference is our float32 cache")
    parser.add_argument("--kv", nargs="+", default=["bf16", "f32"], help="formats of our cache")
    parser.add_argument("--llama", metavar="PYTHON", help="an interpreter with llama-cpp-python")
    parser.add_argument("--llama-kv", nargs="+", default=["f16"], help="formats of its cache")
    parser.add_argument("--record", type=Path, help="add llama.cpp's scores to this file")
    parser.add_argument("--recorded", type=Path, help="take llama.cpp's scores from this file")
    args = parser.parse_args()
    texts = {
        path.stem: path.read_text(encoding="utf-8")
        for path in sorted(args.texts.glob("*-*.txt"), key=lambda path: path.stem.split("-")[::-1])
    }
    if not texts:
        sys.exit(f"{args.texts} has no texts named KIND-N.txt; tests/helpers/texts.py writes some")
    caches = args.llama_kv if args.llama else ()
    peers = {f"llama.cpp {kv}": LlamaCpp(args.llama, args.model, kv, args.tokens) for kv in caches}
    engines = {kv: Engine.load(args.model, kv=kv, context=args.tokens) for kv in args.kv}
    found: dict[str, dict[str, Score]] = {}
    kl: dict[str, list[float]] = {}
    own = args.own and OwnReference(args.model, args.tokens)
    reference = own or Reference(args.model)
    for text, scored, figures in measure(reference, engines, peers, texts, args.tokens):
        for name, one in scored.items():
            found.setdefault(name, {})[text] = one
            kl.setdefault(name, []).extend(figures[name].kl)
        shown = ", ".join(f"{name} {one.kl:.2e}" for name, one in scored.items())
        tokens = next(iter(scored.values())).tokens
        print(f"{text:12s} {tokens:5d} tokens  {shown}", file=sys.stderr, flush=True)
        for name, one in peers.items() if args.record else ():
            write_record(args.record, name, one.version, args.model.stem, found[name])
    for one in peers.values():
        one.close()
    peer = f"llama.cpp {args.llama_kv[0]}"
    if args.recorded and peer not in found:
        stored = read_record(args.recorded, peer, args.model.stem)
        found[peer] = {text: stored[text] for text in texts}
    for kind in dict.fromkeys(text.rpartition("-")[0] for text in texts):
        of_kind = {
            name: [one for text, one in by_text.items() if text.rpartition("-")[0] == kind]
            for name, by_text in found.items()
        }
        for name, some in of_kind.items():
            print(f"{kind:10s}", summary(name, some, of_kind.get(peer, [])))
    theirs = list(found.get(peer, {}).values())
    for name, by_text in found.items():
        every = theirs if name == peer else list(by_text.values())
        median = f", median {np.median(kl[name]):.1e}" if name in kl else ""
        print(summary(name, every, theirs) + median)


if __name__ == "__main__":
    main()
