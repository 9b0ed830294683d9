"""Ootomo and Yokota, Recovering single precision accuracy from Tensor Cores (IJHPCA 2022), and its Japanese report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

import ozaki
from benchmarks.devices import Device
from benchmarks.measure import host
from benchmarks.nvml import Nvml
from ozaki.schemes import PRESETS
from ozaki.schemes.formats import Rounding
from ozaki.tensor_core import A100, H100, TensorCore, round_to
from reproduce import energy, throughput
from reproduce.data import cauchy, exp_rand, randtlr, spatial, uniform
from reproduce.figures import Claim, Figure, Series, between, lasting, times
from reproduce.methods import PARTS, held, in_parts, markidis, parts, relative_residual, simt
from reproduce.speed import ratios

SEED = "recovering"

SCALES = {"small": 10, "cpu": 16, "full": 20}
"""log2 of the largest k; the papers' is 20."""

SIZES = {"small": (256, 512), "cpu": (1024, 2048, 4096, 8192), "full": (512, 1024, 2048, 4096, 8192, 16384)}
"""n of the products whose throughput and energy a GPU shows, by scale."""

EXPONENT_SIZES = {"small": (32, 64), "cpu": (64, 128, 256), "full": (64, 128, 256, 512)}
"""n of the products of operands with given exponents, on a model of tensor cores, by scale."""

ON_DEVICE = {"small": (), "cpu": (1024,), "full": (1024, 2048)}
"""Further n of these products, on a device."""

LARGEST_MODEL = 256
"""Largest n for which models run, too, where there is a device: so that its figures take minutes."""

REPEATS = {"small": 2, "cpu": 2, "full": 8}
"""Pairs of matrices that errors against k are averaged over; 8 in the paper."""

Floats = npt.NDArray[np.float64]


def figures(scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """All tables and figures that need no GPU."""
    largest, repeats = SCALES[scale], REPEATS[scale]
    samples = 10**6 if largest > 10 else 10**5
    yield kept_length("Table 1 (to nearest)", ("RN", "RNA"), {23: 3 / 4, 22: 1 / 4}, 22.75, samples, rng)
    yield kept_length("Table 2 (toward zero)", ("RZ",), {23: 1 / 2, 22: 1 / 4, 21: 1 / 4}, 22.25, samples, rng)
    yield error_against_k(largest, repeats, rng)
    yield last_bit_cut(largest, repeats, rng)
    yield rounding_of_the_accumulator(largest, repeats, rng)
    yield underflow(samples // 10, rng)
    yield representation(samples // 100, rng)
    sizes = EXPONENT_SIZES[scale]
    yield exponent_ranges(sizes, rng)
    yield exponent_ranges_of_the_report(sizes, rng)
    yield exponent_patterns(sizes[-1], rng)
    yield patterns(sizes, rng)


def figures_on_gpu(device: Device, scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """Accuracy of the device's own tensor cores beside their model; throughput; energy."""
    largest = SCALES[scale]
    yield error_against_k(largest, 2, rng, device)  # which the model computes on one thread, too
    sizes = (*EXPONENT_SIZES[scale], *ON_DEVICE[scale])
    yield exponent_ranges(sizes, rng, device)
    yield exponent_ranges_of_the_report(sizes, rng, device)
    yield patterns(sizes, rng, device)
    rows = throughput.measured(device, SIZES[scale], min_seconds=0.5)
    yield from throughput.figures(rows, throughput.PEAKS.get(device.name))
    yield from energy.figures(device, rows, Nvml(device.xp.cuda.Device().pci_bus_id))


# Tables 1 and 2: the significand that two FP16 numbers keep --------------------------------------------------------


def lost_bits(bits: npt.NDArray[np.int64], rounding: Rounding) -> npt.NDArray[np.int64]:
    """Last bits of the significand 1.bits (23 bits) that two FP16 numbers do not keep."""
    v = 1 + bits * 2.0**-23
    high = round_to(v, "fp16", rounding)
    low = round_to((v - high) * 2.0**11, "fp16", rounding) * 2.0**-11
    lost = np.abs(v - high - low) * 2.0**23
    return np.frexp(lost)[1].astype(np.int64)  # the bit length of an integer


def kept_length(
    name: str,
    roundings: tuple[Rounding, ...],
    published: dict[int, float],
    expected: float,
    samples: int,
    rng: np.random.Generator,
) -> Figure:
    """Distribution and expectation of the kept length, over all last 14 bits and over samples."""
    series: Series = {}
    claims = []
    for rounding in roundings:
        theory = 23 - lost_bits(np.arange(2**14, dtype=np.int64) + (1 << 20), rounding)
        drawn = 23 - lost_bits(rng.integers(0, 2**23, samples), rounding)
        for kind, length in (("theory", theory), (f"{samples} samples", drawn)):
            series[f"{rounding}, {kind}"] = [(n, float((length == n).mean())) for n in sorted(published)]
        exact = all((theory == n).mean() == p for n, p in published.items()) and theory.mean() == expected
        near = abs(drawn.mean() - expected) < 5 / np.sqrt(samples)
        shown = ", ".join(f"P({n}) = {p:g}" for n, p in published.items())
        ours = f"{theory.mean():g} in theory, {drawn.mean():.4f} in samples"
        claims.append(Claim(f"{rounding}: {shown}, expectation {expected} bits", ours, bool(exact and near)))
    if "RN" in roundings:
        x = (1 + rng.integers(0, 2**23, samples) * 2.0**-23).astype(np.float32)
        mean = float(23 - (x != cut_last_bit(x)).mean())
        claims.append(Claim("last bit cut: 22.5 bits", f"{mean:.4f} in samples", abs(mean - 22.5) < 0.01))
    return Figure(name, "Significand kept by two FP16 numbers", "length", "probability", series, tuple(claims), log="")


# Figures 1, 4, 5: error against k ---------------------------------------------------------------------------------

Method = Callable[[Any, Any], Any]


def on(name: str, core: TensorCore) -> Method:
    """A preset on other tensor cores."""
    words = replace(PRESETS[name], core=core)
    return lambda a, b: ozaki.matmul(a, b, scheme=words)


def real(device: Device | None) -> dict[str, Method]:
    """The same on a device's own tensor cores, and its native product; nothing without a device."""
    if device is None:
        return {}
    asarray = device.xp.asarray

    def moved(scheme: str) -> Method:
        return lambda a, b: host(ozaki.matmul(asarray(a), asarray(b), scheme=scheme))

    schemes = {"halfhalf": "halfhalf", "tf32tf32": "tf32tf32", "Markidis": "markidis", f"{device.blas} SGEMM": "native"}
    return {f"{name}, {device.name}": moved(scheme) for name, scheme in schemes.items()}


def core_beside(device: Device | None) -> TensorCore:
    """The modelled tensor cores: the paper's, or those of a device."""
    return A100 if device is None else H100


def fp32(device: Device | None) -> str:
    """The series that stands for FP32 SIMT: the device's own SGEMM, where there is one."""
    return "FP32 SIMT" if device is None else f"{device.blas} SGEMM, {device.name}"


def same_as_model(series: Series, device: Device | None) -> tuple[Claim, ...]:
    """Whether errors on the device are those of the model."""
    if device is None:
        return ()
    pairs = [(name, f"{name}, {device.name}") for name in series if f"{name}, {device.name}" in series]
    differ = [name for name, on_device in pairs if not set(series[name]) <= set(series[on_device])]
    names = [*dict.fromkeys(name.rpartition(": ")[2] for name in differ or [name for name, _ in pairs])]
    ours = f"{'other' if differ else 'the same'} errors for {', '.join(names)}"
    return (Claim("(not in the paper) the model of the tensor cores has their bits", ours, not differ),)


def against_k(methods: dict[str, Method], largest: int, repeats: int, rng: np.random.Generator) -> Series:
    """Mean relative residual of (16 x k) (k x 16) on (-1, 1)."""
    series: Series = {name: [] for name in methods}
    for k in (2**e for e in range(4, largest + 1, 2)):
        operands = [(uniform(rng, (16, k), -1, 1), uniform(rng, (k, 16), -1, 1)) for _ in range(repeats)]
        for name, method in methods.items():
            errors = [relative_residual(method(a, b), a, b) for a, b in operands]
            series[name].append((k, float(np.mean(errors))))
    return series


def averaged(repeats: int, core: TensorCore = A100, device: Device | None = None) -> str:
    """How the errors against k come about."""
    of = f"Averaged over {repeats} pairs of matrices" + ("" if repeats == 8 else " (8 in the paper)")
    if device is None:
        return f"{of}, on a model of the {core.name} instead of one."
    return f"{of}, on a model of the {core.name} and on the {device.name}."


def error_against_k(largest: int, repeats: int, rng: np.random.Generator, device: Device | None = None) -> Figure:
    core = core_beside(device)
    methods: dict[str, Method] = {
        "halfhalf": on("halfhalf", core),
        "tf32tf32": on("tf32tf32", core),
        "Markidis": on("markidis", core),
        "Feng": on("feng", core),
        "FP32 SIMT": in_parts,
        "FP16 tensor core": on("single-fp16", core),
        "TF32 tensor core": on("single-tf32", core),
        **real(device),
    }
    series = against_k(methods, largest, repeats, rng)
    figure = Figure("Figure 1", "Accuracy of (16 x k) (k x 16)", "k", "relative residual", series, ())
    first, last = figure.at("Markidis", 16) / figure.at("FP16 tensor core", 16), figure.last("Markidis")
    native, caught_up = figure.last(fp32(device)), last / figure.last("FP16 tensor core")
    both = [ratios(series, name, fp32(device)) for name in ("halfhalf", "tf32tf32")]
    shown = " and ".join(f"{max(errors.values()):.2g} times" for errors in both)
    feng = ratios(series, "Feng", "Markidis").values()
    claims = (
        Claim("halfhalf and tf32tf32 are as accurate as FP32 SIMT", f"at most {shown} its error",
              max(max(errors.values()) for errors in both) < 2),
        Claim("Markidis' method loses to FP32 SIMT as k grows", f"{times(last, native)} its error", last > 2 * native),
        Claim("Markidis' method is far better than plain FP16 for small k, and its error catches up",
              f"ratio {first:.1g} at k = 16, {caught_up:.1g} at the end",
              first < 0.01 and (caught_up > 0.5 or largest < 16)),
        Claim("the method of Feng et al. shows no advantage over that of Markidis et al.",
              f"{between(feng)} its error", min(feng) > 0.8 and max(feng) < 1.25),
        *same_as_model(series, device),
    )  # fmt: skip
    differs = (
        f"{averaged(repeats, core, device)} {_EVERY_OTHER} {_OURS} FP32 SIMT is summed in {PARTS} parts of k, as GPUs "
        "share so long sums out. Markidis' method adds four products an instruction to one accumulator, plain FP16 "
        "one, so it truncates four times as often."
    )
    if device is not None:
        differs += (
            f" On the {device.name} it is {device.blas} SGEMM, in more parts: its chains of additions are shorter than "
            "ours, of all blocks one after the other."
        )
    return replace(figure, claims=claims, differs=differs)


_EVERY_OTHER = "Every other power of two of the paper's k."

_OURS = (
    "Our halfhalf is promoted every 64 of k and tf32tf32 every 32, not every 8, and the products of the low words "
    "share the accumulator of the leading one, and are promoted with it."
)


def cut_last_bit(x: Any) -> Any:
    return (x.view(np.int32) & ~1).view(np.float32)


def last_bit_cut(largest: int, repeats: int, rng: np.random.Generator) -> Figure:
    methods: dict[str, Method] = {
        "Markidis": on("markidis", A100),
        "FP32 SIMT": simt,
        "FP32 SIMT, last bit cut": lambda a, b: simt(cut_last_bit(a), cut_last_bit(b)),
    }
    series = against_k(methods, largest, repeats, rng)
    figure = Figure("Figure 4", "Cutting the last bit of FP32 operands", "k", "relative residual", series, ())
    worse = ratios(series, "Markidis", "FP32 SIMT, last bit cut")
    since_k = lasting({k: ratio > 1 for k, ratio in worse.items()}) or 0
    claim = Claim("Markidis' error is worse than that of operands cut to 22.5 bits, though it keeps 22.75",
                  f"from k = {since_k} on, {worse[max(worse)]:.2g} times at the end", 0 < since_k <= 256)  # fmt: skip
    differs = f"{averaged(repeats)} {_EVERY_OTHER} The report's figure 2 has it on (-8, 8), the same but for the scale."
    return replace(figure, claims=(claim,), differs=differs)


def rounding_of_the_accumulator(largest: int, repeats: int, rng: np.random.Generator) -> Figure:
    methods: dict[str, Method] = {
        "Markidis": on("markidis", A100),
        "Markidis with mma_rz": partial(markidis, rounding="RZ"),
        "Markidis with mma_rn": partial(markidis, rounding="RN"),
        "FP32 SIMT": simt,
    }
    series = against_k(methods, largest, repeats, rng)
    figure = Figure("Figure 5", "Rounding of the accumulator", "k", "relative residual", series, ())
    nearest, zero = (figure.last(f"Markidis with mma_{r}") for r in ("rn", "rz"))
    like_fp32 = ratios(series, "Markidis with mma_rn", "FP32 SIMT").values()
    like_theirs = ratios(series, "Markidis with mma_rz", "Markidis").values()
    claims = (
        Claim("with mma_rn the accuracy is that of FP32 SIMT",
              f"{between(like_fp32)} its error", max(like_fp32) < 2),
        Claim("with mma_rz it is that of Markidis' method on tensor cores",
              f"{between(like_theirs)} its error",
              min(like_theirs) > 0.5 and max(like_theirs) < 2),
        Claim("with mma_rz accuracy is lost", f"{times(zero, nearest)} the error of mma_rn", zero > 2 * nearest),
    )  # fmt: skip
    differs = f"{averaged(repeats)} {_EVERY_OTHER} FP32 SIMT is one chain of additions."
    return replace(figure, claims=claims, differs=differs)


# Figures 8 and 9: underflow and representation --------------------------------------------------------------------


def p_zeros(n: int) -> float:
    """Equation 14: the probability of n zeros after the ten leading bits of a significand of 23 bits."""
    return 0.0 if n < 0 else 0.5 ** min(n + 1, 13) if n <= 13 else 0.0


def p_underflow(e: int, gradual: bool) -> float:
    """Equations 15 and 17: the low word of a number of exponent e is subnormal or less, or less than subnormal."""
    first = e + 15 - 2 - (10 if gradual else 0) + 1
    return sum(p_zeros(n) for n in range(max(first, 0), 14))


def underflow(samples: int, rng: np.random.Generator) -> Figure:
    exponents = range(-16, 12)
    series: Series = {}
    worst = 0.0
    for gradual, name in ((True, "P_u+gu"), (False, "P_u")):
        theory: list[tuple[float, float]] = [(e, p_underflow(e, gradual)) for e in exponents]
        for scale in (0, 11):
            points: list[tuple[float, float]] = []
            for e in exponents:
                v = np.ldexp(1 + rng.integers(0, 2**23, samples) * 2.0**-23, e)
                # Toward zero, and with the exponent of the first word unbounded, as the theory assumes; which counts
                # a low word of nothing as if it had one more bit.
                low = np.ldexp(v - np.ldexp(round_to(np.ldexp(v, -e), "tf32", "RZ"), e), scale)
                least = -14 if gradual else -24
                lost = np.abs(round_to(low, "fp16", "RZ")) < 2.0**least
                points.append((e, float(np.where(low == 0, e - 24 + scale < least, lost).mean())))
            series[f"{name}, samples" + (", low word times 2^11" if scale else "")] = points
            if not scale:
                worst = max(worst, max(abs(p - q) for (_, p), (_, q) in zip(points, theory, strict=True)))
        series[f"{name}, theory"] = theory
    at_one = dict(series["P_u+gu, samples"])[0]
    moved = max(
        abs(p - p_underflow(int(e) + 11, gradual))
        for gradual, name in ((True, "P_u+gu"), (False, "P_u"))
        for e, p in series[f"{name}, samples, low word times 2^11"]
    )
    claims = (
        Claim("equations 13 to 17 agree with samples", f"largest difference {worst:.1g}", worst < 5 / sqrt(samples)),
        Claim("gradual underflow occurs even for numbers around 1", f"P_u+gu(0) = {at_one:.2g}", at_one > 0.05),
        Claim("the scaling by 2^11 moves both by 11 exponents",
              f"largest difference from the equations for e + 11: {moved:.1g}", moved < 5 / sqrt(samples)),
    )  # fmt: skip
    return Figure(
        "Figure 8", "Underflow of the low FP16 word", "exponent of the number", "probability", series, claims,
        "As the theory has it, the first word's exponent has no bounds, and a low word of nothing counts as if it had "
        "one more bit.", "",
    )  # fmt: skip


def representation(samples: int, rng: np.random.Generator) -> Figure:
    holders = {
        "FP16": "single-fp16", "TF32": "single-tf32", "halfhalf": "halfhalf", "tf32tf32": "tf32tf32",
        "Markidis' halfhalf": "markidis",
    }  # fmt: skip
    series: Series = {name: [] for name in holders}
    for e in range(-126, 128, 2):
        v = np.ldexp(1 + rng.integers(0, 2**23, samples) * 2.0**-23, e).astype(np.float32)
        for name, preset in holders.items():
            with np.errstate(invalid="ignore"):  # what is Inf in FP16, less itself
                _, left = parts(v, PRESETS[preset])
            error = float((np.abs(left) / v).mean())
            if np.isfinite(error):  # elements from 65520 on are Inf in FP16
                series[name].append((e, error))
    figure = Figure(
        "Figure 9", "Representation error", "exponent of the number", "mean relative error", series, (), log="y"
    )
    good = {name: min(e for e, y in points if y < 2 * min(q for _, q in points)) for name, points in series.items()}
    claims = (
        Claim("halfhalf keeps its accuracy over a wider range than Markidis' halfhalf",
              f"down to 2^{good['halfhalf']:g} against 2^{good['Markidis' + chr(39) + ' halfhalf']:g}",
              good["halfhalf"] < good["Markidis' halfhalf"]),
        Claim("tf32tf32 keeps it over nearly the entire range of FP32", f"down to 2^{good['tf32tf32']:g}",
              good["tf32tf32"] <= -100),
        Claim("halfhalf and tf32tf32 are as good as each other inside",
              f"{figure.at('halfhalf', 0):.1g} and {figure.at('tf32tf32', 0):.1g} at 1",
              figure.at("halfhalf", 0) <= 2 * figure.at("tf32tf32", 0)),
    )  # fmt: skip
    return replace(figure, claims=claims, differs="Without the scaling of rows and columns that the library adds. The "
                   "numbers are FP32, so FP32 has no error to show; those of FP16 end where it overflows.")  # fmt: skip


# Figures 11 to 13: exponents of the operands ----------------------------------------------------------------------


def unscaled(name: str, core: TensorCore, device: Device | None = None) -> Method:
    """A preset that sees only what its words hold without scaling, as in the paper; on a device if one is given."""
    words = replace(PRESETS[name], core=core)
    place = (lambda x: x) if device is None else device.xp.asarray
    return lambda a, b: host(ozaki.matmul(place(held(a, words)), place(held(b, words)), scheme=words))


Exponents = tuple[int, int]

Pairs = dict[str, Callable[[int], tuple[Any, Any]]]
"""What draws two n x n matrices, by the name of a panel."""


UNSCALED = "halfhalf, unscaled"


_UNSCALED = (
    "'halfhalf, unscaled' has what FP16 words hold of the operands as they are, as in the paper; the library scales "
    "rows and columns first. The error of FP32, one chain of additions, grows with n, so that what is lost beside it "
    "shrinks."
)


def errors_by_size(pairs: Pairs, sizes: Sequence[int], device: Device | None, published: bool) -> Series:
    """Errors of square products, `published`: of halfhalf without scaling, too; of models up to moderate sizes."""
    core = core_beside(device)
    modelled = {"halfhalf": on("halfhalf", core), "tf32tf32": on("tf32tf32", core), "FP32 SIMT": simt}
    methods = real(device)
    if published:
        modelled[UNSCALED] = unscaled("halfhalf", core)
        if device is not None:
            methods[f"{UNSCALED}, {device.name}"] = unscaled("halfhalf", core, device)
    series: Series = {}
    for panel, draw in pairs.items():
        for n in sizes:
            a, b = draw(n)
            here = {**(modelled if device is None or n <= LARGEST_MODEL else {}), **methods}
            for name, method in here.items():
                series.setdefault(f"{panel}: {name}", []).append((n, relative_residual(method(a, b), a, b)))
    return series


def series_of(name: str, device: Device | None) -> str:
    """The series of a method, on the device if there is one."""
    return name if device is None else f"{name}, {device.name}"


def beside_fp32(series: Series, panel: str, name: str, device: Device | None) -> dict[int, float]:
    """Errors of a method, on the device if there is one, in those of FP32 SIMT, by size."""
    return ratios(series, f"{panel}: {series_of(name, device)}", f"{panel}: {fp32(device)}")


def loses(series: Series, panel: str, device: Device | None) -> tuple[str, bool]:
    """What halfhalf without scaling loses, beside itself with it: at every size, however much FP32 errs."""
    lost = ratios(
        series, f"{panel}: {series_of(UNSCALED, device)}", f"{panel}: {series_of('halfhalf', device)}"
    ).values()
    return f"{between(lost)} the error of scaled halfhalf", min(lost) > 2


def least_unscaled(series: Series, panel: str) -> float:
    """The smallest error of halfhalf without scaling, on the model and on a device."""
    return min(y for name, points in series.items() if name.startswith(f"{panel}: {UNSCALED}") for _, y in points)


def exp_rands(types: dict[str, tuple[Exponents, Exponents]], rng: np.random.Generator) -> Pairs:
    """Pairs of exp_rand matrices of these ranges."""

    def drawing(left: Exponents, right: Exponents) -> Callable[[int], tuple[Any, Any]]:
        return lambda n: (exp_rand(rng, (n, n), *left), exp_rand(rng, (n, n), *right))

    return {name: drawing(*ranges) for name, ranges in types.items()}


def exponent_ranges_of_the_report(
    sizes: Sequence[int], rng: np.random.Generator, device: Device | None = None
) -> Figure:
    high, low, none = (-15, 14), (-35, -15), (-45, -35)
    types = {"type 1": (high, high), "type 2": (high, low), "type 3": (high, none)}
    series = errors_by_size(exp_rands(types, rng), sizes, device, published=True)
    bare = {panel: beside_fp32(series, panel, UNSCALED, device) for panel in types}
    lost, same = least_unscaled(series, "type 3"), max(bare["type 1"].values())
    tf32 = max(max(beside_fp32(series, panel, "tf32tf32", device).values()) for panel in types)
    claims = (
        Claim("exp_rand(-15, 15) both: halfhalf has the accuracy of FP32 SIMT",
              f"at most {same:.2g} times its error", same < 3),
        Claim("exp_rand(-35, -15) in one: it loses accuracy", *loses(series, "type 2", device)),
        Claim("exp_rand(-45, -35) in one: it cannot hold the elements", f"an error of {lost:.1g}", lost > 0.1),
        Claim("tf32tf32 has the accuracy of FP32 SIMT throughout", f"at most {tf32:.2g} times its error", tf32 < 3),
    )  # fmt: skip
    return Figure("Figure 8 of the report", "Exponent ranges", "n", "relative residual", series, claims,
                  "Types 1 to 3 in the order of the rows above, one pair of matrices for each size; exponents up to 14 "
                  f"instead of 15, since FP16 rounds elements from 65520 on to Inf. {_UNSCALED}",
                  panels=tuple(types))  # fmt: skip


def exponent_ranges(sizes: Sequence[int], rng: np.random.Generator, device: Device | None = None) -> Figure:
    high, low, tiny = (-15, 14), (-35, -15), (-100, -35)
    types = {"type 1": (high, high), "type 2": (high, low), "type 3": (low, low), "type 4": (high, tiny)}
    series = errors_by_size(exp_rands(types, rng), sizes, device, published=True)
    bare = {panel: beside_fp32(series, panel, UNSCALED, device) for panel in types}
    none, same = least_unscaled(series, "type 4"), max(bare["type 1"].values())
    tf32, ours = (
        max(max(beside_fp32(series, panel, name, device).values()) for panel in types)
        for name in ("tf32tf32", "halfhalf")
    )
    claims = (
        Claim("tf32tf32 has the accuracy of FP32 SIMT in all types", f"at most {tf32:.2g} times its error", tf32 < 3),
        Claim("halfhalf has it in type 1", f"at most {same:.2g} times its error", same < 3),
        *(Claim(f"halfhalf loses accuracy in type {i}", *loses(series, f"type {i}", device)) for i in (2, 3)),
        Claim("halfhalf cannot compute type 4: scaling is needed first", f"an error of {none:.1g}", none > 0.1),
        Claim("(not in the paper) scaled, halfhalf computes all types", f"at most {ours:.2g} times that of FP32",
              ours < 3),
        *same_as_model(series, device),
    )  # fmt: skip
    differs = (
        "Type 2 pairs exp_rand(-15, 14) with exp_rand(-35, -15), as the figure's caption has it; the text prints the "
        "range of type 4. Elements of 2^-35 are the last subnormals of the low word, so a few of type 4 are not lost. "
        f"One pair of matrices for each size. {_UNSCALED}"
    )
    return Figure("Figure 11", "Exponent ranges, exp_rand", "n", "relative residual", series, claims, differs,
                  panels=tuple(types))  # fmt: skip


def exponent_patterns(n: int, rng: np.random.Generator) -> Figure:
    matrices = {
        "randtlr": randtlr(rng, n), "spatial": spatial(rng, n), "cauchy": cauchy(rng, n),
        "urand(-1, 1)": uniform(rng, (n, n), -1, 1), "exp_rand(-15, 0)": exp_rand(rng, (n, n), -15, 0),
    }  # fmt: skip
    series = {}
    for name, x in matrices.items():
        exponents, counts = np.unique(np.frexp(x[x != 0])[1] - 1, return_counts=True)
        series[name] = [(float(e), float(c / x.size)) for e, c in zip(exponents, counts, strict=True)]
    spans = {name: points[-1][0] - points[0][0] for name, points in series.items()}
    shown = ", ".join(f"{name}: {span:g}" for name, span in spans.items())
    different = max(spans.values()) > 1.5 * min(spans.values())
    claim = Claim("(not in the paper) the patterns have exponents of very different spread", shown, different)
    return Figure(
        "Figure 12", f"Exponents of the matrices, n = {n}", "exponent", "share of the elements", series, (claim,),
        f"Shares of the exponents instead of pictures. {_STARSH}", "y",
    )  # fmt: skip


_STARSH = (
    "The matrices are ours, after the descriptions of STARS-H: its own Cauchy matrix has the same points on both "
    "sides and ones on the diagonal, its low-rank tiles share their factors, its spatial points are sorted along a "
    "curve. Text and caption of the paper differ in which side they stand on, and in the range of urand; here it is "
    "(-1, 1)."
)


def patterns(sizes: Sequence[int], rng: np.random.Generator, device: Device | None = None) -> Figure:
    left: dict[str, Callable[[int], Any]] = {
        "urand": lambda n: uniform(rng, (n, n), -1, 1), "exp_rand": lambda n: exp_rand(rng, (n, n), -15, 0),
    }  # fmt: skip
    right: dict[str, Callable[[int], Any]] = {
        "randtlr": partial(randtlr, rng), "spatial": partial(spatial, rng), "cauchy": partial(cauchy, rng),
    }  # fmt: skip

    def drawing(a: str, b: str) -> Callable[[int], tuple[Any, Any]]:
        return lambda n: (left[a](n), right[b](n))

    pairs = {f"{a} times {b}": drawing(a, b) for a in left for b in right}
    series = errors_by_size(pairs, sizes, device, published=False)
    errors = (beside_fp32(series, panel, name, device) for panel in pairs for name in ("halfhalf", "tf32tf32"))
    worst = max(max(each.values()) for each in errors)
    claim = Claim("halfhalf and tf32tf32 are as accurate as SGEMM for all patterns",
                  f"at most {worst:.2g} times its error", worst < 2)  # fmt: skip
    return Figure("Figure 13", "Patterns of exponents", "n", "relative residual", series,
                  (claim, *same_as_model(series, device)),
                  f"On the model of the {core_beside(device).name}, one pair of matrices for each size. {_STARSH}",
                  panels=tuple(pairs))  # fmt: skip
