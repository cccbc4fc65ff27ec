"""``triplepoint show``: what a model is, whether it can be run, and the memory that it takes."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....traces.sanitize import short
from ...agent.harness.tuned import Tuned, tuned_for
from ...gguf.filehash import remembered
from ...hub.makers import maker_sampling
from ...hub.model_info import FileInfo, read_model_info
from ...hub.progress import size_text
from ..load_engine import model_path
from ..output import Output
from ..tables import block, rate

if TYPE_CHECKING:
    from ...bench.reach import Speed
    from .facts import LayerKind, ModelFacts

_FFNS = {"dense": "dense", "experts": "with experts"}
_DRAFTS = {
    "used": "an MTP head, which drafts tokens in addition to the context",
    "left out": "an MTP head, which is ignored: not supported for this architecture",
    "missing": "the model has an MTP head, but this file does not include it",
}
_CONTEXTS = (4096, 32768)  # for which memory is shown, beside the longest


def run(args: argparse.Namespace, output: Output) -> None:
    """Read a model file's header, and print its facts and predicted speed."""
    from ....jit.targets import chosen
    from ...bench.reach import known_here, speed
    from ...engine.engine import resolve_model
    from .facts import read_model_facts

    path, target = resolve_model(model_path(args.name, output)), chosen().name
    facts = read_model_info(path, target)
    made_of = None if facts.problems else read_model_facts(path, target)
    machine = known_here(target)
    expected = speed(made_of.cost, machine) if made_of and machine else None
    show(facts, output, made_of, expected, doubtful=bool(machine and machine.doubtful))
    output.json(
        {
            **asdict(facts),
            "context_memory": _contexts(facts),
            "runs": not facts.problems,
            "made_of": made_of.as_dict() if made_of else None,
            "expected": asdict(expected) if expected else None,
            "harness": asdict(tuned) if (tuned := tuned_file(path)) else None,
        }
    )


def show(
    facts: FileInfo,
    output: Output,
    made_of: ModelFacts | None = None,
    expected: Speed | None = None,
    *,
    doubtful: bool = False,
) -> None:
    """Print the facts in blocks of names and values.

    made_of: None if it cannot be run. expected: None if this machine's limits are not known.
    doubtful: these were measured while other work disturbed them.
    """
    context = f"{facts.context:,} tokens" if facts.context else "unknown"
    layers = f", {facts.layers} layers" if facts.layers else ""
    files = f" in {facts.files} files" if facts.files > 1 else ""
    block(
        output,
        "model",
        [
            ("name", facts.name),
            ("file", f"{facts.path}, {size_text(facts.nbytes)}{files}"),
            ("architecture", f"{facts.architecture or '?'}{layers}"),
            ("parameters", f"{facts.parameters:,}, most of them {facts.quant}"),
            ("context", context),
            ("tokenizer", facts.tokenizer),
            *([("draft layer", _DRAFTS[facts.mtp])] if facts.mtp else []),
            ("chat template", "yes" if facts.template else "none; questions use a plain format"),
            *([("tool calls", _calls(made_of))] if made_of else []),
            *_sampling_rows(facts),
            *([("harness", tuned.text)] if (tuned := tuned_file(facts.path)) else []),
        ],
    )
    rows = [
        (kind, f"{share.tensors:>4} tensors {share.parameters:>16,} weights "
               f"{size_text(share.nbytes):>8}")
        for kind, share in facts.types.items()
    ]  # fmt: skip
    block(output, "tensors", rows)
    if made_of is not None:
        _show_layers(made_of, output)
    _show_memory(facts, output)
    if made_of is not None:
        rows = _speed_rows(expected, facts)
        if doubtful and expected is not None:
            from ...physics.machine import DOUBT

            rows.append(("doubtful", DOUBT))
        block(output, "speed expected here", rows)
    values = [
        (key, short(" ".join(str(value).split()), 60)) for key, value in facts.metadata.items()
    ]
    block(output, "metadata", values)
    if not facts.problems:
        output.line("supported: this model runs here", "green")
    for problem in facts.problems:
        output.line(f"not supported: {problem}", "yellow")


def tuned_file(path: Path | None) -> Tuned | None:
    """Return the settings that `doctor --agent` found for a file, if its SHA-256 is known."""
    return tuned_for(remembered(path.stat()) or "") if path is not None else None


def _sampling_rows(facts: FileInfo) -> list[tuple[str, str]]:
    advice = maker_sampling(facts.name, facts.architecture)
    if advice is None:
        return []
    thinks = [("while thinking", advice.text(thinks=True))] if advice.thinking else []
    return [("sampling advised", advice.text(thinks=False)), *thinks]


def _calls(made_of: ModelFacts) -> str:
    form = [f"in the format {made_of.calls}"] if made_of.calls else []
    return "; ".join([*form, *made_of.notes])


def _show_layers(made_of: ModelFacts, output: Output) -> None:
    """Print the layers by kind, the state of a sequence, and what a pass reads."""
    block(output, "layers", [(f"{k.layers:>3} ×", _kind(k)) for k in made_of.kinds])
    rows = []
    if made_of.experts:
        more = f", and {made_of.shared} that every token takes" * bool(made_of.shared)
        rows.append(("experts", f"{made_of.experts_used} of {made_of.experts} per token{more}"))
    scale, unit = (1e9, "billion") if made_of.active >= 1e9 else (1e6, "million")
    rows.append(("active", f"{made_of.active / scale:,.3g} {unit} weights per token"))
    for one in made_of.passes:
        name = f"a pass of {one.rows} token" + "s" * (one.rows > 1)
        parts = [f"{size_text(one.weights)} of weights"]
        if made_of.experts:
            parts[0] += f" ({one.experts:.3g} experts of a layer)"
        if one.states:
            parts.append(f"{size_text(one.states)} of states")
        rows.append((name, f"{' and '.join(parts)}: {size_text(one.token)} per token"))
    block(output, "read", rows)


def _kind(kind: LayerKind) -> str:
    """Describe a kind of layer, and its bytes per token and per sequence."""
    what = [kind.what] if kind.what != "none" else []
    if kind.window:
        what.append(f"window {kind.window:,}")
    parts = [", ".join([*what, *([_FFNS[kind.ffn]] if kind.ffn else [])])]
    if any(kind.kv_token.values()):
        sizes = ", ".join(f"{kv} {size_text(n)}" for kv, n in kind.kv_token.items())
        parts.append(f"per token: {sizes}")
    if kind.keys:
        forms = (f"{kv} {' and '.join(forms)}" for kv, forms in kind.keys.items())
        parts.append(f"stored keys: {', '.join(forms)}")
    states = {"state": kind.state, "convolution": kind.conv}
    if any(states.values()):
        sizes = ", ".join(f"{name} {size_text(n)}" for name, n in states.items() if n)
        parts.append(f"per sequence: {sizes}")
    return "; ".join(parts)


def _speed_rows(expected: Speed | None, facts: FileInfo) -> list[tuple[str, str]]:
    """Return rows of predicted speeds, or the reason why there are none."""
    from ...memory import installed_bytes

    if expected is None:
        return [
            ("none", "this machine has not been measured yet; `triplepoint models` measures it")
        ]
    installed = installed_bytes()
    if installed and facts.memory is not None and facts.memory.weights > installed:
        return [("none", f"the weights do not fit in the {size_text(installed)} of this machine")]
    from ...bench.reach import CONTEXT, PROMPT, TOGETHER

    how = "measured with this model" if expected.basis == "calibration" else "typical"
    return [
        (f"TTFT of {PROMPT:,} tokens", f"{rate(expected.ttft_s)} s"),
        ("decode", f"{rate(expected.decode)} tok/s, {rate(expected.decode_deep)} at {CONTEXT:,}"),
        (f"{TOGETHER} sequences", f"{rate(expected.together)} tok/s together at {CONTEXT:,}"),
        ("from", f"this machine's limits and the share that kernels reach of them ({how})"),
    ]


def _show_memory(facts: FileInfo, output: Output) -> None:
    from ...memory import installed_bytes

    if facts.memory is None:
        return
    rows = [("weights, packed", size_text(facts.memory.weights))]
    for row in _contexts(facts):
        parts = ", ".join(f"{size_text(row[kv])} with {kv}" for kv in facts.memory.kv_token)
        rows.append((f"with {row['context']:,} tokens", parts))
    if total := installed_bytes():
        rows.append(("this machine has", size_text(total)))
    block(output, "memory", rows)


def _contexts(facts: FileInfo) -> list[dict[str, Any]]:
    """Return the memory for some lengths of context, in each format of the KV cache."""
    if facts.memory is None:
        return []
    longest = facts.context or max(_CONTEXTS)
    lengths = sorted({longest, *(n for n in _CONTEXTS if n < longest)})
    return [
        {"context": n, **{kv: facts.memory.total(n, kv) for kv in facts.memory.kv_token}}
        for n in lengths
    ]
