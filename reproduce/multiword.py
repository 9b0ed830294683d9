"""Fasi, Higham, Lopez, Mary, Mikaitis, Matrix multiplication in multiword arithmetic (SIAM J. Sci. Comput., 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import ozaki
from benchmarks.devices import Device
from benchmarks.measure import host
from ozaki.bounds import words as word_bounds
from ozaki.schemes import PRESETS, Words
from ozaki.tensor_core import A100, H100, V100, TensorCore
from reproduce import words_speed
from reproduce.data import uniform
from reproduce.figures import Claim, Figure, Series, between, grows, times
from reproduce.methods import BLOCK_FMA_1, PARTS, componentwise, in_parts, largest_ratio, product_and_scale, simt
from reproduce.speed import ratios
from reproduce.throughput import PEAKS
from reproduce.words_speed import ALGORITHM, BLOCKS, algorithm_4_1, two_words

SEED = "multiword"

SCALES = {"small": 11, "cpu": 16, "full": 20}
"""log2 of the largest n; the paper's is 20."""

SIZES = {"small": (256, 512), "cpu": (512, 1024, 2048, 4096), "full": (512, 1024, 2048, 4096, 8192, 16384)}
"""Of the products whose throughput a GPU shows."""

SIDES = {"small": 16, "cpu": 16, "full": 512}
"""Rows and columns of figures 4.4 and 4.5 on a GPU; 512 in the paper."""

MODELLED = {"small": (512,), "cpu": (512, 2048, 8192), "full": (512, 2048, 8192)}
"""n of the products that a GPU and the model of its tensor cores both compute."""

Method = Callable[[Any, Any], Any]

Points = list[tuple[float, float]]

POSITIVE, CENTRED = (0.0, 1.0), (-0.5, 0.5)

MODEL = H100
"""The tensor cores whose model computes the same products as a device."""


def where(here: OnDevice | None, side: int = 16) -> str:
    """What ours ran on, where the paper's cuBLAS may have added in another order."""
    operands = f"{side} rows and columns of float32 (sums of two FP16 numbers in the paper)"
    if here is None:
        return (
            f"{operands}, on models of the tensor cores, whose order of additions cuBLAS may not share; fp32 is summed "
            f"in {PARTS} parts of n, as GPUs share so long sums out."
        )
    return f"{operands}, by our kernels on the {here.device.name}; fp32 is {here.device.blas} SGEMM."


def where_512(here: OnDevice | None, side: int) -> str:
    """The same of figures 4.4 and 4.5."""
    return ("" if side == 512 else "512 rows and columns in the paper. ") + where(here, side)


def figures(scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """All tables and figures that need no GPU: those of accuracy."""
    largest = SCALES[scale]
    yield bounds()
    yield simulated(largest, POSITIVE, rng)
    yield simulated(largest, CENTRED, rng)
    yield on_tensor_cores(largest, POSITIVE, rng)
    yield on_tensor_cores(largest, CENTRED, rng)
    yield roundings(largest, rng)
    yield fabsum(largest, rng)
    yield fabsum_of_fp16(largest, rng)


def figures_on_gpu(device: Device, scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """Accuracy of the device's own tensor cores, up to the paper's n and beside their model; throughput."""
    here = OnDevice(device, MODELLED[scale])
    largest = SCALES[scale]
    yield on_tensor_cores(largest, POSITIVE, rng, here)
    yield on_tensor_cores(largest, CENTRED, rng, here)
    yield fabsum(largest, rng, here, SIDES[scale])
    yield fabsum_of_fp16(largest, rng, here, SIDES[scale])
    yield from words_speed.figures(device, SIZES[scale], PEAKS.get(device.name))


def bounds(n: int = 4096) -> Figure:
    """Table 2.1: the dominant terms, beside our bounds for FP32 sums to nearest and for the H100."""
    terms = {
        "single-fp16": 2 * 2.0**-11,
        "double-fp16": 0.0,
        "single-bf16": 2 * 2.0**-8,
        "double-bf16": 3 * 2.0**-16,
        "triple-bf16": 0.0,
    }
    claims = []
    for name, conversion in terms.items():
        theirs = conversion + n * 2.0**-24
        ideal = word_bounds.relative(replace(PRESETS[name], core=BLOCK_FMA_1), n)
        h100 = word_bounds.relative(replace(PRESETS[name], core=H100), n)
        claims.append(
            Claim(
                f"{name}: {f'{conversion:.2g} + ' if conversion else ''}n 2^-24 = {theirs:.3g} for n = {n}",
                f"{ideal:.3g} for FP32 sums to nearest, {h100:.3g} for the H100",
                0.9 * theirs < ideal < 1.05 * theirs,
            )
        )
    differs = (
        "Ours have all terms, not the dominant ones alone; what a second word of BF16 leaves counts half as much, "
        "since it has a sign of its own. The H100 adds 16 products at once, so its bound is smaller than that of "
        "rounding after every product, although it truncates."
    )
    return Figure("Table 2.1", "Error bounds", "", "", {}, tuple(claims), differs)


# Error against n ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnDevice:
    """Products on a device, and those that its model computes too.

    Attributes
    ----------
    device : Device
    modelled : their n
    """

    device: Device
    modelled: tuple[int, ...]

    def multiply(self, words: Words) -> Method:
        asarray = self.device.xp.asarray
        return lambda a, b: host(ozaki.matmul(asarray(a), asarray(b), scheme=words))

    def fp32(self, a: Any, b: Any) -> Any:
        """The native product."""
        xp = self.device.xp
        return host(xp.matmul(xp.asarray(a), xp.asarray(b)))

    def cublas(self, a: Any, b: Any) -> Any:
        """Algorithm 4.1 as it is in the paper."""
        xp = self.device.xp
        out = xp.empty((a.shape[0], b.shape[1]), np.float32)
        algorithm_4_1(two_words(xp.asarray(a)), two_words(xp.asarray(b)), out)
        return host(out)

    def same_bits(self, schemes: dict[str, Words], interval: tuple[float, float], rng: np.random.Generator) -> Claim:
        """Whether the model computes the same products."""
        differ = set()
        for n in self.modelled:
            a, b = uniform(rng, (16, n), *interval), uniform(rng, (n, 16), *interval)
            for name, words in schemes.items():
                if not np.array_equal(self.multiply(words)(a, b), multiply(words)(a, b)):
                    differ.add(name)
        ours = f"other bits for {', '.join(sorted(differ))}" if differ else f"the same bits for all {len(schemes)}"
        at = ", ".join(map(str, self.modelled))
        return Claim(f"(not in the paper) {MODEL.name}'s model has the tensor cores' bits, n = {at}", ours, not differ)


def multiply(words: Words) -> Method:
    return lambda a, b: ozaki.matmul(a, b, scheme=words)


def all_of(schemes: dict[str, Words], here: OnDevice | None) -> dict[str, Method]:
    """FP32 and products of words, on a device or on models of tensor cores."""
    if here is None:
        return {"fp32": in_parts, **{name: multiply(words) for name, words in schemes.items()}}
    return {"fp32": here.fp32, **{name: here.multiply(words) for name, words in schemes.items()}}


def preset(name: str, core: TensorCore) -> Method:
    return multiply(replace(PRESETS[name], core=core))


def against_n(
    methods: dict[str, Method],
    largest: int,
    interval: tuple[float, float],
    rng: np.random.Generator,
    here: OnDevice | None = None,
    side: int = 16,
) -> Series:
    """Largest componentwise error of (side x n) (n x side), where the operands are."""
    series: Series = {name: [] for name in methods}
    place = np.asarray if here is None else here.device.xp.asarray
    for n in (2**e for e in range(9, largest + 1)):
        a, b = (place(uniform(rng, shape, *interval)) for shape in ((side, n), (n, side)))
        exact, scale = map(host, product_and_scale(a, b))
        for name, method in methods.items():
            series[name].append((n, largest_ratio(method(a, b), exact, scale)))
    return series


def named(interval: tuple[float, float]) -> str:
    return f"({interval[0]:g}, {interval[1]:g}]"


def simulated(largest: int, interval: tuple[float, float], rng: np.random.Generator) -> Figure:
    methods = {
        "fp16": preset("single-fp16", BLOCK_FMA_1),
        "double-fp16": preset("double-fp16", BLOCK_FMA_1),
        "fp32": simt,
    }
    series = against_n(methods, largest, interval, rng)
    figure = Figure(f"Figure 3.1, {named(interval)}", "Simulated with FP32 sums to nearest", "n",
                    "componentwise error", series, ())  # fmt: skip
    worse, alike = ratios(series, "fp16", "double-fp16"), ratios(series, "double-fp16", "fp32").values()
    claims = [
        Claim("double-fp16 has the accuracy of fp32", f"{between(alike)} its error",
              min(alike) > 1 / 3 and max(alike) < 3),
        Claim("double-fp16 is far better than fp16 for small n", f"fp16 has {worse[512]:.2g} times its error at 512",
              worse[512] > 10),
    ]  # fmt: skip
    if interval == POSITIVE:
        better = max(n for n, ratio in worse.items() if ratio > 1.1)
        claims.append(Claim("double-fp16 is no better than fp16 from about n = 6 10^4 on",
                            f"fp16 has more than 1.1 times its error up to n = {better}",
                            1.5e4 < better < 2.5e5 or largest < 16))  # fmt: skip
    else:
        claims.append(Claim("double-fp16 is at least an order of magnitude better than fp16 up to n = 10^6",
                            f"fp16 has at least {min(worse.values()):.2g} times its error",
                            min(worse.values()) > 10))  # fmt: skip
    differs = "Operands are float32, sums of two FP16 numbers in the paper."
    return replace(figure, claims=tuple(claims), differs=differs + ("" if largest == 20 else " Up to n = 2^20 there."))


def on_tensor_cores(
    largest: int, interval: tuple[float, float], rng: np.random.Generator, here: OnDevice | None = None
) -> Figure:
    cores = {core.name: core for core in (V100, A100)} if here is None else {here.device.name: MODEL}
    last = list(cores)[-1]
    schemes = {
        f"{name}, {at}": replace(PRESETS[scheme], core=core)
        for at, core in cores.items() for name, scheme in (("fp16", "single-fp16"), ("double-fp16", "double-fp16"))
    }  # fmt: skip
    methods = all_of(schemes, here) | ({} if here is None else {ALGORITHM: here.cublas})
    series = against_n(methods, largest, interval, rng, here)
    figure = Figure(f"Figure 4.2, {named(interval)}", "Algorithm 4.1 on tensor cores that truncate", "n",
                    "componentwise error", series, ())  # fmt: skip
    at_end = {at: figure.last(f"double-fp16, {at}") for at in cores}
    best = min(at_end.values())
    claims, differs = [], where(here)
    if interval == POSITIVE:
        slope = grows(series[f"double-fp16, {last}"])
        close = figure.last(f"fp16, {last}") / figure.last(f"double-fp16, {last}")
        claims = [
            Claim("double-fp16 is much less accurate than fp32", f"at least {times(best, figure.last('fp32'))}",
                  best > 4 * figure.last("fp32")),
            Claim("the error of double-fp16 grows linearly with n", f"as n^{slope:.2f}", 0.8 < slope < 1.2),
            Claim("for large n double-fp16 is no better than fp16",
                  f"fp16 has {close:.2g} times its error at {2**largest}", close < 3),
        ]  # fmt: skip
        if here is not None:
            slope = grows(without_jump(series[ALGORITHM]))
            claims.append(
                Claim("algorithm 4.1 by cuBLAS errs in proportion to n", f"as n^{slope:.2f}", 0.8 < slope < 1.2)
            )
            differs += _SPLIT
    else:
        pairs = list(zip(series[f"fp16, {last}"], series[f"double-fp16, {last}"], strict=True))
        often = sum(single > 2 * double for (_, single), (_, double) in pairs)
        less = [n for (n, ours), (_, theirs) in zip(series[f"double-fp16, {last}"], series["fp32"], strict=True)
                if ours > theirs]  # fmt: skip
        claims = [
            Claim("double-fp16 is often significantly more accurate than fp16",
                  f"more than twice as accurate at {often} of {len(pairs)} sizes on the {last}",
                  often > len(pairs) / 2),
            Claim("double-fp16 is not always as accurate as fp32, especially on the A100",
                  f"less accurate at {len(less)} of {len(pairs)} sizes on the {last}; at the end it has "
                  + " and ".join(f"{times(error, figure.last('fp32'))} its error on the {at}"
                                 for at, error in at_end.items()),
                  0 < len(less) < len(pairs) and at_end[last] == max(at_end.values())
                  and (here is not None or at_end[last] > 1.5 * at_end[V100.name])),
        ]  # fmt: skip
        if len(less) == len(pairs):
            differs += (
                " Where fp32 is summed in so many parts, its error does not grow with n, and no other comes near it."
            )
    if here is not None:
        differs += jump(series[ALGORITHM])
        claims.append(here.same_bits(schemes, interval, rng))
    return replace(figure, claims=tuple(claims), differs=differs)


_SPLIT = (
    " Where cuBLAS's error stays as it is for several n, it shares the inner dimension of so small a product out among "
    "blocks, and adds their sums in FP32."
)


def without_jump(points: Points) -> Points:
    """A series but for a last point that is far above the one before."""
    return points[:-1] if points[-1][1] > 4 * points[-2][1] else points


def jump(points: Points) -> str:
    """What is known of such a point."""
    if without_jump(points) == points:
        return ""
    return (
        f" At n = {points[-1][0]} each FP16 product of so few rows and columns by cuBLAS errs far more than at half "
        f"that n, and their sum {points[-1][1] / points[-2][1]:.3g} times as much; the slope leaves it out "
        "(cuBLAS 13.1 on an H200, (-0.5, 0.5], n = 1048576: 3.3e-5 of the product of absolute values with 16 rows and "
        "columns, 8.7e-8 with 64)."
    )


def roundings(largest: int, rng: np.random.Generator) -> Figure:
    """Figure 4.3: sums in 16 blocks of n / 16 on the V100's tensor core, rounded either way."""
    nearest = TensorCore("V100, to nearest", alignment_bits=40, fused=4, rounding="RN", words=("fp16",))
    series: Series = {"fp32": []}
    for n in (2**e for e in range(9, largest + 1)):
        a, b = uniform(rng, (16, n), *POSITIVE), uniform(rng, (n, 16), *POSITIVE)
        series["fp32"].append((n, componentwise(in_parts(a, b), a, b)))
        for core, rounding in ((V100, "toward zero"), (nearest, "to nearest")):
            for count, name in ((1, "fp16"), (2, "double-fp16")):
                words = Words("fp16", count, block=n // 16, promotion="fp32", accumulators="pair", core=core)
                error = componentwise(ozaki.matmul(a, b, scheme=words), a, b)
                series.setdefault(f"{name}, {rounding}", []).append((n, error))
    figure = Figure("Figure 4.3", "Rounding inside the block FMA, (0, 1]", "n", "componentwise error", series, ())
    zero, near = (figure.last(f"double-fp16, {r}") for r in ("toward zero", "to nearest"))
    fp32, slope = figure.last("fp32"), grows(series["double-fp16, toward zero"])
    claims = (
        Claim("toward zero, double-fp16 loses accuracy as n grows", f"as n^{slope:.2f}, {times(zero, near)} the error "
              "of to nearest", zero > 2 * near),
        Claim("to nearest, double-fp16 and fp32 are comparable", f"{times(near, fp32)} its error",
              fp32 / 4 < near < 4 * fp32),
    )  # fmt: skip
    differs = (
        "The V100 loses most when it cuts the terms to align them, not when it rounds their sum; so the tensor core "
        "that rounds to nearest here adds its four products and the accumulator exactly before. "
    )
    return replace(figure, claims=claims, differs=differs + where(None))


def fabsum(largest: int, rng: np.random.Generator, here: OnDevice | None = None, side: int = 16) -> Figure:
    """Figure 4.4, right: on models of both tensor cores of the paper, or on a device."""
    cores = {core.name: core for core in (V100, A100)} if here is None else {here.device.name: MODEL}
    methods: dict[str, Method] = {}
    for at, core in cores.items():
        schemes = {name: replace(words, core=core) for name, words in BLOCKED_ALGORITHMS.items()}
        here_too = {} if here is None else {ALGORITHM: here.cublas}
        methods |= {f"{at}: {name}": method for name, method in (all_of(schemes, here) | here_too).items()}
    series = against_n(methods, largest, POSITIVE, rng, here, side)
    figure = Figure("Figure 4.4, right", "FABsum, (0, 1]", "n", "componentwise error", series, (), panels=tuple(cores))
    claims = [claim for at in cores for claim in fabsum_claims(at, figure, largest, here is not None)]
    claims += [] if here is None else [here.same_bits(schemes, POSITIVE, rng)]
    differs = (
        f"{where_512(here, side)} FABsum-v1 adds the sums of blocks in FP32, whose error grows with their number: so "
        "the smallest block need not be the most accurate one for the largest n."
    )
    return replace(figure, claims=tuple(claims), differs=differs)


BLOCKED_ALGORITHMS = {"double-fp16": PRESETS["double-fp16"]} | {
    f"{name}, b = {block}": replace(PRESETS[name], block=block)
    for name in ("fabsum-v1", "fabsum-v2")
    for block in BLOCKS
}
"""Algorithm 4.1, and 4.4 with either FABsum."""

CROSSINGS = {V100.name: 3e5}
"""n from which on FABsum-v2 with blocks of 256 is more accurate than v1 with 128; 10^5 on the A100."""


def fabsum_claims(at: str, figure: Figure, largest: int, on_device: bool) -> list[Claim]:
    """What figure 4.4 says, of one panel."""
    panel = {name: dict(points) for name, points in figure.of_panel(at).items()}
    end = 2**largest
    v1, v2 = ({b: panel[f"fabsum-{v}, b = {b}"] for b in BLOCKS} for v in ("v1", "v2"))
    plain, fp32 = panel[ALGORITHM if on_device else "double-fp16"], panel["fp32"]
    blocked = [*v1.values(), *v2.values()]
    gain = min(plain[end] / each[end] for each in blocked)
    ordered = {name: all([v[b][n] for b in BLOCKS] == sorted(v[b][n] for b in BLOCKS) for n in fp32 if n >= max(BLOCKS))
               for name, v in (("v1", v1), ("v2", v2))}  # fmt: skip
    until = max((n for n in fp32 if v2[256][n] > v1[128][n]), default=0)
    crossing = CROSSINGS.get(at, 1e5)
    return [
        Claim(f"{at}: FABsum is more accurate than algorithm 4.1 at every block size",
              f"at least {gain:.2g} times at {end}", gain > 1),
        Claim(f"{at}: smaller blocks are more accurate",
              ", ".join(f"{name} {'for all n' if always else 'not for all n'}" for name, always in ordered.items()),
              all(ordered.values())),
        Claim(f"{at}: FABsum-v2 with a small block matches fp32 for large n",
              f"{times(v2[BLOCKS[0]][end], fp32[end])} its error at {end}",
              1 / 4 < v2[BLOCKS[0]][end] / fp32[end] < 2 or largest < 16),
        Claim(f"{at}: v2 with b = 256 is less accurate than v1 with b = 128 until about n = {crossing:.0e}",
              f"until n = {until}", crossing / 3 < until < 3 * crossing or largest < 17),
    ]  # fmt: skip


def fabsum_of_fp16(largest: int, rng: np.random.Generator, here: OnDevice | None = None, side: int = 16) -> Figure:
    core, at = (A100, A100.name) if here is None else (MODEL, here.device.name)
    schemes = {f"fp16, b = {block}": Words("fp16", 1, block=block, promotion="fp64", core=core) for block in BLOCKS} | {
        "double-fp16, b = 256": replace(PRESETS["fabsum-v2"], core=core)
    }
    methods = all_of(schemes, here)
    series = against_n({name: methods[name] for name in schemes}, largest, POSITIVE, rng, here, side)
    figure = Figure("Figure 4.5, right", f"FABsum-v2 of fp16, (0, 1], {at}", "n", "componentwise error", series, ())
    errors = [figure.last(f"fp16, b = {block}") for block in BLOCKS]
    double = figure.last("double-fp16, b = 256")
    smallest, others = (dict(series["fp16, b = 128"]), [dict(series[f"fp16, b = {block}"]) for block in BLOCKS[1:]])
    reference = dict(series["double-fp16, b = 256"])
    reached = next((n for n in reference if smallest[n] <= 1.2 * reference[n]), None)
    least = min(other[n] / reference[n] for other in others for n in reference)
    claims = (
        Claim("fp16 with b = 128 is less accurate than double-fp16 with b = 256, but as accurate for n of about 10^6",
              f"{smallest[512] / reference[512]:.2g} times its error at 512, "
              + (f"{errors[0] / double:.2g} times at {2**largest}" if reached is None else f"as accurate at {reached}"),
              smallest[512] > 2 * reference[512] and (2.5e5 < (reached or 0) < 4e6 or largest < 18)),
        Claim("fp16 with b of 256 and more is less accurate than double-fp16 with b = 256 for all n",
              f"at least {least:.2g} times its error", least > 1),
        *([] if here is None else [here.same_bits(schemes, POSITIVE, rng)]),
    )  # fmt: skip
    return replace(figure, claims=claims, differs=where_512(here, side))
