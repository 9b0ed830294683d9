"""Fasi et al. on a GPU: throughput of algorithms 4.1 and 4.4, figures 4.1 and the left halves of 4.4 and 4.5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import ozaki
from benchmarks.devices import Device
from ozaki.schemes import PRESETS, Words
from reproduce.cublas import Compute, gemm
from reproduce.figures import Claim, Figure, Series, between, since
from reproduce.speed import Product, over, ratios, speeds
from reproduce.throughput import Peaks, fastest

FP32, FP16, ALGORITHM = "fp32, cuBLAS", "fp16, cuBLAS", "double-fp16, cuBLAS"

SINGLE, DOUBLE, HALFHALF = "ozaki fp16", "ozaki double-fp16", "ozaki halfhalf"

BLOCKS = (128, 256, 512, 1024)

PLAIN: dict[str, Words] = {
    SINGLE: PRESETS["single-fp16"],
    DOUBLE: PRESETS["double-fp16"],
    HALFHALF: PRESETS["halfhalf"],
}

SINGLE_WORDS = {block: f"fp16, v2, b = {block}" for block in BLOCKS}

BLOCKED: dict[str, Words] = {
    **{f"v1, b = {block}": replace(PRESETS["fabsum-v1"], block=block) for block in BLOCKS},
    **{f"v2, b = {block}": replace(PRESETS["fabsum-v2"], block=block) for block in BLOCKS},
    **{name: Words("fp16", 1, block=block, promotion="fp64") for block, name in SINGLE_WORDS.items()},
}
"""Algorithm 4.4 with FABsum of either version, and FABsum-v2 of single words."""

_TIMED = (
    "Uniform on (0, 1]. Times are those of products of words, which are cut before, as in the paper. Our words are "
    "scaled, those for cuBLAS are not."
)

_KERNELS = (
    "Our kernel multiplies one pair of words after the other and adds blocks while the tensor cores go on; cuBLAS "
    "takes a product of its own for each pair, and the paper's FABsum is CUTLASS's split of the inner dimension. "
    "halfhalf takes its three products in one pass."
)


def figures(device: Device, sizes: Sequence[int], peaks: Peaks | None, min_seconds: float = 0.05) -> Iterator[Figure]:
    """All three; blocks are not timed at the largest size, where they take longest."""
    plain = over((n, measured(device, n, plain_products, min_seconds)) for n in sizes)
    yield without_blocks(plain, peaks)
    blocked = over((n, measured(device, n, blocked_products, min_seconds)) for n in sizes[:-1] or sizes)
    double = {name: points for name, points in blocked.items() if name not in SINGLE_WORDS.values()}
    yield with_blocks({name: plain[name] for name in (FP32, ALGORITHM, DOUBLE, HALFHALF)} | double)
    yield of_single_words(blocked)


def measured(device: Device, n: int, products: Any, min_seconds: float) -> dict[str, float]:
    """TFLOP/s of n x n products."""
    rng = device.xp.random.default_rng(0)
    a, b = (1 - rng.random((n, n), dtype=np.float32) for _ in range(2))
    return speeds(device, a, b, products(device, a, b), min_seconds)


def plain_products(device: Device, a: Any, b: Any) -> Iterator[Product]:
    """FP32, single and double words by cuBLAS, and ours."""
    out = device.xp.empty(a.shape, np.float32)
    left, right = two_words(a), two_words(b)
    yield Product(FP32, partial(device.xp.matmul, a, b, out=out), out, worst(a))
    yield Product(FP16, partial(gemm, left[0], right[0], out, Compute.FP32), out, worst(a))
    yield Product(ALGORITHM, partial(algorithm_4_1, left, right, out), out, worst(a))
    yield from prepared(a, b, out, PLAIN)


def blocked_products(device: Device, a: Any, b: Any) -> Iterator[Product]:
    """FABsum."""
    return prepared(a, b, device.xp.empty(a.shape, np.float32), BLOCKED)


def prepared(a: Any, b: Any, out: Any, schemes: Mapping[str, Words]) -> Iterator[Product]:
    """Our products of operands that are words already."""
    for name, words in schemes.items():
        plan = ozaki.plan(a.shape, b.shape, dtype="float32", scheme=words)
        left, right = ozaki.prepare(a, "left", plan), ozaki.prepare(b, "right", plan)
        yield Product(name, partial(ozaki.matmul, left, right, plan=plan, out=out), out, worst(a))


def two_words(x: Any) -> tuple[Any, Any]:
    """Algorithm 4.1, lines 2 to 5."""
    high = x.astype(np.float16)
    return high, (x - high).astype(np.float16)


def algorithm_4_1(left: tuple[Any, Any], right: tuple[Any, Any], out: Any) -> None:
    """Lines 6 to 8, by cuBLAS."""
    gemm(left[1], right[0], out, Compute.FP32)
    gemm(left[0], right[1], out, Compute.FP32, beta=1)
    gemm(left[0], right[0], out, Compute.FP32, beta=1)


def worst(a: Any) -> float:
    """Twice the bound of table 2.1 for single words, since tensor cores truncate."""
    return float(2.0**-9 + a.shape[1] * 2.0**-23)


def without_blocks(series: Series, peaks: Peaks | None) -> Figure:
    """Figure 4.1."""
    speedup = ratios(series, ALGORITHM, FP32)
    ours = {name: ratios(series, name, FP32) for name in (DOUBLE, HALFHALF)}
    slower = max(series[FP16])[1] / max(series[ALGORITHM])[1]
    claims = [
        Claim("double-fp16 is up to 2.2 times as fast as fp32 on the V100, and up to 7.3 times on the A100",
              f"up to {max(speedup.values()):.2g} times, {since('faster', faster(speedup))}",
              max(speedup.values()) >= 2.2),
        Claim("double-fp16 is about 3 times slower than fp16", f"{slower:.2g} times at n = {largest(series)}",
              2 < slower < 4),
        *(Claim(f"(not in the paper) {name} is faster than fp32",
                f"up to {max(ratio.values()):.2g} times as fast, {since('faster', faster(ratio))}",
                max(ratio.values()) > 1) for name, ratio in ours.items()),
    ]  # fmt: skip
    if peaks is not None:
        single, half = fastest(series, FP32) / peaks.fp32, fastest(series, FP16) / peaks.fp16
        claims.append(Claim("fp32 and fp16 come relatively close to their peaks: 19 of 19.5 and 158 of 312 TFLOP/s on "
                            "the A100",
                            f"{single:.0%} of {peaks.fp32:g} and {half:.0%} of {peaks.fp16:g} TFLOP/s",
                            min(single, half) > 0.5))  # fmt: skip
    return figure("Figure 4.1", "Throughput of algorithm 4.1", series, claims)


def with_blocks(series: Series) -> Figure:
    """Figure 4.4, left."""
    n = largest(series, "v1, b = 128")
    v1, v2 = ([dict(series[f"{v}, b = {block}"])[n] for block in BLOCKS] for v in ("v1", "v2"))
    longer = [x / y for x, y in zip(v1, v2, strict=True)]
    alike = v2[1] / v1[0]
    theirs, same = (v1[-1] / dict(series[name])[n] for name in (ALGORITHM, DOUBLE))
    small, promoted = (ratios(series, name, FP32) for name in ("v2, b = 128", HALFHALF))
    claims = [
        Claim("FABsum-v2 costs more than FABsum-v1",
              f"{between(longer)} the time at n = {n}", min(longer) > 1),
        Claim("smaller blocks are slower", f"v1: {listed(v1)}, v2: {listed(v2)} TFLOP/s",
              v1 == sorted(v1) and v2 == sorted(v2)),
        Claim("v2 with b = 256 is as fast as v1 with b = 128", f"{alike:.2g} times as fast", 0.9 < alike < 1.1),
        Claim("v1 with large blocks can be as fast as algorithm 4.1",
              f"{theirs:.2g} times as fast with b = {BLOCKS[-1]}", theirs > 0.9),
        Claim("(not in the paper) v1 with large blocks is as fast as the same kernel without blocks",
              f"{same:.2g} times as fast", same > 0.9),
        Claim("v2 with small blocks is significantly faster than fp32",
              f"up to {max(small.values()):.2g} times as fast with b = {BLOCKS[0]}, {since('faster', faster(small))}",
              small[n] > 1.2),
        Claim("(not in the paper) halfhalf, with blocks of 64 and sums in FP32, is significantly faster than fp32",
              f"up to {max(promoted.values()):.2g} times as fast, {since('faster', faster(promoted))}",
              promoted[n] > 1.2),
    ]  # fmt: skip
    apart = max(abs(v[-1] / v[-2] - 1) for v in (v1, v2))
    more = (
        f" Blocks of {BLOCKS[-2]} and {BLOCKS[-1]} are {apart:.1%} apart at most. Sums in FP64 take twice the "
        f"registers, which leaves narrower tiles: so v2 is slower whatever its block. {_NOT_THE_LARGEST}"
    )
    return figure("Figure 4.4, left", "Throughput of algorithm 4.4, FABsum", series, claims, more)


_NOT_THE_LARGEST = "Blocks are not timed at the largest size of figure 4.1, where they take longest."


def of_single_words(blocked: Series) -> Figure:
    """Figure 4.5, left."""
    double = "v2, b = 256"
    series = {"double-fp16, " + double: blocked[double]} | {name: blocked[name] for name in SINGLE_WORDS.values()}
    times = {block: ratios(blocked, name, double) for block, name in SINGLE_WORDS.items()}
    n = largest(blocked)
    others = [times[block][n] for block in BLOCKS[1:]]
    claims = [
        Claim("double-fp16 with b = 256 is faster than fp16 with b = 128",
              f"fp16 is {times[128][n]:.2g} times as fast at n = {n}", times[128][n] < 1),
        Claim("fp16 with b = 256 or larger is faster than double-fp16 with b = 256",
              f"{between(others)} as fast at n = {n}", min(others) > 1),
    ]  # fmt: skip
    return figure("Figure 4.5, left", "Throughput of FABsum-v2 of fp16", series, claims, _SMALL_BLOCKS)


_SMALL_BLOCKS = (
    " In the paper a small block is a short product whose result goes through memory, and costs more than two further "
    f"products of words; ours stays in registers. {_NOT_THE_LARGEST}"
)


def figure(name: str, title: str, series: Series, claims: Sequence[Claim], more: str = "") -> Figure:
    return Figure(name, title, "n", "TFLOP/s (2 n³ / time)", series, tuple(claims), f"{_TIMED} {_KERNELS}{more}")


def largest(series: Series, name: str = "") -> int:
    """The largest size of one series, or of all."""
    return max(int(x) for points in ([series[name]] if name else series.values()) for x, _ in points)


def faster(ratio: Mapping[int, float]) -> dict[int, bool]:
    return {n: y > 1 for n, y in ratio.items()}


def listed(speeds: Iterable[float]) -> str:
    return ", ".join(f"{speed:.3g}" for speed in speeds)
