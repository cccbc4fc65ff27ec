"""CPU targets: what is detected, what can be asked for, and what errors say."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
from helpers.feature_sets import BF16, DOT, groups

from triplepoint.errors import TargetError
from triplepoint.jit import targets
from triplepoint.jit.compile import Spec, build_ir, spec
from triplepoint.jit.dot import KEY_INSTRUCTION
from triplepoint.jit.kernels.activations import prepare
from triplepoint.jit.kernels.argmax import argmax_part
from triplepoint.jit.kernels.attention import attention
from triplepoint.jit.kernels.embed import embed
from triplepoint.jit.kernels.gemm import gemm_quant
from triplepoint.jit.kernels.imatrix_accumulate import square_sums
from triplepoint.jit.kernels.lm_head import gemm_selected
from triplepoint.jit.kernels.mamba2 import mamba2
from triplepoint.jit.kernels.moe import clamped_glu, gemm_experts, group, route
from triplepoint.jit.kernels.panels import pack
from triplepoint.jit.kernels.rope import rope_store
from triplepoint.jit.targets import (
    TARGETS,
    CpuTarget,
    detect,
    host_arch,
    host_features,
    resolve,
    runnable,
)
from triplepoint.runtime.physics.machine import cpu_name

NAMES = {
    "generic",
    "x86-64-v2",
    "avx2",
    "avx-vnni",
    "avx512",
    "avx512-vnni",
    "avx512-bf16",
    "amx-bf16",
    "neon",
    "neon-dotprod",
    "neon-i8mm",
}


def test_the_named_targets() -> None:
    """The feature sets that the documents name, each under its own name."""
    assert set(TARGETS) == NAMES
    assert all(name == str(target) for name, target in TARGETS.items())


def test_generic_runs_everywhere() -> None:
    """There is always a target: the portable one is the least of those that run."""
    assert runnable()[0].name == "generic"
    assert detect() in runnable()


@pytest.mark.parametrize(
    ("intel", "best", "chosen"),
    [
        (True, "avx512-bf16", "avx512-vnni"),
        (True, "amx-bf16", "amx-bf16"),
        (True, "avx512-vnni", "avx512-vnni"),
        (False, "avx512-bf16", "avx512-bf16"),
    ],
)
def test_bf16_only_where_it_is_fast(
    intel: bool, best: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Intel CPU does more in fp32 than with the instructions for bf16; a user may still ask."""
    upto = list(TARGETS.values())[: list(TARGETS).index(best) + 1]
    monkeypatch.setattr(targets, "runnable", lambda: upto)
    monkeypatch.setattr(targets, "is_intel", lambda: intel)

    assert detect().name == chosen


def test_the_vendor_is_the_one_that_the_system_names() -> None:
    """As in Linux' own list, where there is one."""
    path = Path("/proc/cpuinfo")
    if host_arch() != "x86_64" or not path.exists():
        pytest.skip("needs x86-64 and /proc/cpuinfo")
    assert targets.is_intel() == ("vendor_id\t: GenuineIntel\n" in path.read_text())
    assert all(t.intel == targets.is_intel() for t in TARGETS.values() if t.arch == "x86_64")


@pytest.mark.parametrize(
    ("system", "machine", "told", "intel"),
    [
        ("Linux", "x86_64", "GenuineIntel", True),
        ("Linux", "x86_64", "AuthenticAMD", False),
        ("Linux", "aarch64", None, False),
        ("Windows", "AMD64", None, True),
        ("Darwin", "x86_64", None, True),
        ("Darwin", "arm64", None, False),
        ("FreeBSD", "amd64", None, False),
    ],
)
def test_whose_cpu_it_is(
    system: str, machine: str, told: str | None, intel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux lists it, Windows has it in the processor's name, and a Mac with x86-64 is Intel's."""
    names = {"Windows": "Intel64 Family 6 Model 140 Stepping 1, GenuineIntel", "Darwin": "i386"}
    monkeypatch.setattr(targets, "cpuinfo", lambda *_: told)
    monkeypatch.setattr(targets.platform, "system", lambda: system)
    monkeypatch.setattr(targets.platform, "machine", lambda: machine)
    monkeypatch.setattr(targets.platform, "processor", lambda: names.get(system, ""))

    assert targets.is_intel.__wrapped__() == intel


def test_runnable_means_that_every_feature_is_there() -> None:
    """A target runs here if and only if its architecture and all of its features are."""
    for target in TARGETS.values():
        here = target.arch in ("any", host_arch())
        has = here and set(target.needs) <= host_features()
        # The system may refuse the tile registers that the CPU has.
        assert (target in runnable()) == has or (target.has_amx and has)


def test_detection_agrees_with_the_kernel() -> None:
    """What LLVM found in the CPU is also in the operating system's own list."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        pytest.skip("this system has no /proc/cpuinfo")
    text = path.read_text()
    for feature, flag in (("avx2", "avx2"), ("avx512vnni", "avx512_vnni"), ("dotprod", "asimddp")):
        if feature in host_features():
            assert f" {flag}" in text


def test_a_feature_that_the_system_hides_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does not save the wide registers rules out what CPUID still reports."""
    shown = targets._cpuinfo_flags()
    if host_arch() != "x86_64" or shown is None or "avx2" not in shown:
        pytest.skip("needs an x86-64 CPU with AVX2 and /proc/cpuinfo")
    monkeypatch.setattr(targets, "_cpuinfo_flags", lambda: shown - {"avx512f", "avx2"})
    features = targets._host_features.__wrapped__()

    assert "avx2" not in features
    assert "avx512f" not in features
    assert "sse4.2" in features


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        ("fp asimd atomics", "neon"),
        ("fp asimd asimddp", "neon-dotprod"),
        ("fp asimd asimddp sve i8mm bf16", "neon-i8mm"),
    ],
)
def test_an_arm_cpu_has_what_the_system_lists(
    flags: str, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM reports neither dot products nor i8mm of an ARM CPU: Linux does."""
    found = types.SimpleNamespace(get_host_cpu_features=lambda: {"neon": True, "fp-armv8": True})
    monkeypatch.setattr(targets, "llvm_binding", lambda: found)
    monkeypatch.setattr(targets, "host_arch", lambda: "aarch64")
    monkeypatch.setattr(targets, "_cpuinfo_flags", lambda: set(flags.split()))
    monkeypatch.setattr(targets, "host_features", targets._host_features.__wrapped__)

    assert detect().name == best


@pytest.mark.parametrize("name", [None, "", "auto"])
def test_the_best_is_the_default(name: str | None) -> None:
    """No name, an empty one and `auto` pick what `detect` finds."""
    assert resolve(name) is detect()


@pytest.mark.parametrize("target", runnable(), ids=str)
def test_a_masked_cpu_is_a_lesser_one(target: CpuTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the mask leaves out is seen by nothing: detection, errors and the CPU's name."""
    monkeypatch.delenv(targets.MASK, raising=False)
    whole = cpu_name()
    monkeypatch.setenv(targets.MASK, target.name)
    assert host_features() == set(target.needs)
    assert detect() is TARGETS[targets.slower_than(target) or target.name]
    assert cpu_name() == f"{whole} (as {target})"
    for more in set(TARGETS.values()) - set(runnable()):
        with pytest.raises(TargetError, match=f"cannot run target '{more}'"):
            resolve(more.name)


@pytest.mark.parametrize("name", ["avx9000", "neon" if host_arch() == "x86_64" else "avx2"])
def test_a_mask_of_no_cpu_like_this(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable and the targets that it may name."""
    monkeypatch.setenv(targets.MASK, name)
    with pytest.raises(TargetError, match=rf"TRIPLEPOINT_CPU is '{name}'.*known: generic"):
        detect()


def test_a_lesser_target_can_be_asked_for() -> None:
    """Every target that runs here can be named."""
    for target in runnable():
        assert resolve(target.name) is target


def test_unknown_name() -> None:
    """The error says what was asked for and what there is."""
    with pytest.raises(TargetError, match=r"unknown CPU target 'avx9000'; known: .*avx512-bf16"):
        resolve("avx9000")


def test_another_architecture() -> None:
    """A target of another architecture is refused; the error says why and what runs here."""
    other = "neon" if host_arch() == "x86_64" else "avx2"
    with pytest.raises(
        TargetError, match=rf"cannot run target '{other}'.*lacks an \w+ CPU.*generic"
    ):
        resolve(other)


def test_missing_features_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU without AVX-512 the error lists exactly what is missing."""
    if host_arch() != "x86_64":
        pytest.skip("the features of this test are those of x86-64")
    monkeypatch.setattr(targets, "host_features", lambda: frozenset(TARGETS["avx2"].needs))
    with pytest.raises(TargetError, match="lacks avx512f, avx512bw") as caught:
        resolve("avx512")
    assert "it can run generic, x86-64-v2, avx2" in str(caught.value)
    assert detect().name == "avx2"


def test_descriptions_are_consistent() -> None:
    """Width, storage of weights and instructions follow from one another."""
    for target in TARGETS.values():
        assert target.bits == {4: 128, 8: 256, 16: 512}[target.lanes]
        assert target.dot in KEY_INSTRUCTION
        # The unsigned-by-signed instructions want weights with 128 added.
        assert target.signed_bytes == (target.dot not in ("vpdpbusd", "usdot"))
        assert (target.bf16 != "none") == ("avx512bf16" in target.needs)
        features = [f.removeprefix("+") for f in target.features.split(",") if f]
        assert features[: len(target.needs)] == list(target.needs)
        assert features[len(target.needs) :] in ([], ["fast-dpwssd"])  # tuning, no instructions
        if target.arch != "any":
            assert target.triple.startswith(target.arch)


def test_each_x86_target_adds_to_a_lesser_one() -> None:
    """What a target needs includes all that some target before it needs."""
    known: list[set[str]] = [set()]
    for target in TARGETS.values():
        if target.arch == "x86_64":
            assert any(set(target.needs) > lesser for lesser in known), target
            known.append(set(target.needs))


SMALLEST = {"epilogue": "store", "blocks": 2, "tile": 1, "max_single_tile": 1}
HEADS = {"head_dim": 32, "kv_heads": 1, "group": 1}
# Which weights are asked for, how far ahead and how near they are brought differs between VNNI
# alone, with bf16 and with tiles: that changes no result, so for tests of results these count as
# alike. From how many tokens on a panel of blocks of 32 is unpacked differs, too.
AHEAD = (DOT, BF16)
UNASKING = ("q5_0", "mxfp4", "q3_k", "q4_k", "iq4_xs", "iq3_s", "iq2_xs", "iq1_m")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "asks"),
    [
        *((spec(gemm_quant, fmt=fmt, **SMALLEST), AHEAD) for fmt in ("q4_0", "q8_0", "iq4_nl")),
        *((spec(gemm_quant, fmt=fmt, **SMALLEST), AHEAD) for fmt in ("q4_k", "q3_k", "iq4_xs")),
        (spec(gemm_experts, fmt="f32", share=1, **SMALLEST), AHEAD),
        (spec(gemm_experts, fmt="mxfp4", share=1, **SMALLEST), AHEAD),
        (spec(gemm_selected, fmt="bf16", blocks=2, tile=1, max_single_tile=1), AHEAD),
        (spec(pack, fmt="q8_0"), (DOT,)),
        *((spec(pack, fmt=fmt), ()) for fmt in UNASKING),
        *((spec(embed, fmt=fmt), ()) for fmt in (*UNASKING, "q8_0", "bf16")),
        (spec(square_sums), ()),
        (spec(route, experts=60, used=5, gating="sigmoid", corrected=True), ()),
        (spec(group, experts=60, used=5), ()),
        (spec(clamped_glu), ()),
        (spec(attention, **HEADS, kv="q8"), (DOT,)),
        (spec(attention, **HEADS, kv="bf16"), (BF16,)),
        (spec(attention, **HEADS, kv="k16v8"), (BF16, DOT)),
        (spec(rope_store, **HEADS, kv="bf16", norm=True, rotated=32), (BF16,)),
        (spec(prepare, norm=True, kind="int8", group=4, gather=False), ()),
        (spec(mamba2, heads=1, head_dim=32, groups=1, state_dim=32), ()),
        (spec(argmax_part), ()),
    ],
    ids=lambda value: value.source.name if isinstance(value, Spec) else "",
)
def test_feature_sets_that_are_alike(kernel: Spec, asks: tuple[str, ...]) -> None:
    """Those that differ in nothing that a kernel asks for get the same IR: one stands for all."""
    for alike in groups(TARGETS, asks):
        texts = {
            build_ir(kernel, target).replace(kernel.symbol(target), "")
            for target in (TARGETS[name] for name in alike)
        }
        assert len(texts) == 1, alike
