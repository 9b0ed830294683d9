"""Products by every kind of kernel on Hopper, small enough for compute-sanitizer.

compute-sanitizer --tool memcheck python tests/gpu/sanitized.py
compute-sanitizer --tool racecheck python tests/gpu/sanitized.py large
compute-sanitizer --tool racecheck python tests/gpu/sanitized.py stacks
compute-sanitizer --tool racecheck python tests/gpu/sanitized.py sixteen

Errors of racecheck in nvjet_* are cuBLAS's own; excluding its kernels makes the sanitizer fail (CUDA 13.0).

It also reports that `stack` reads slices of complex elements too early, where some warps wait at the barrier of the
block while others meet at barriers of their own before they write: with two barriers of the block in succession it
finds nothing.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from unittest import mock

import cupy as cp
import numpy as np

import ozaki
from built import Steps
from ozaki.backends.cupy import repeated
from ozaki.backends.cupy.steps.describing import find_largest
from ozaki.backends.cupy.steps.engines import choice, fused_residues, tiled, word_promoted
from ozaki.backends.cupy.steps.overlap import overlap
from ozaki.backends.cupy.steps.proof import least_product, lower_bound
from ozaki.backends.cupy.steps.sample import sample
from ozaki.backends.numpy import _describe, _overlap, _proof
from ozaki.bounds.levels import levels
from ozaki.schemes import PRESETS, Words
from ozaki.tensor_core import H100

COUNTED = (
    ("digits", 3, "f4", (513, 4000, 200), "fused"),  # its last tiles are split along k
    ("digits", 7, "f8", (513, 700, 200), "fused"),
    ("digits", 4, "f8", (50, 300, 40), "cublas"),
    ("residues", 5, "f4", (300, 300, 200), "fused"),
    ("residues", 14, "f8", (300, 1100, 200), "fused"),  # rows too long for a warp alone
    ("residues", 14, "f8", (300, 500, 300), "cublas"),
    ("residues", 7, "f4", (100, 9000, 40), "fused"),  # in parts of k
    ("fp16-digits", 4, "f4", (50, 300, 40), "auto"),
)
QUADRANTS = (("residues", 7, "f4", (513, 260, 390), "fused"), ("residues", 14, "f8", (300, 700, 400), "fused"))
TOGETHER = (  # tiles for more than two waves
    ("residues", 5, "f4", (9, 260, 5300), "fused"),
    ("digits", 3, "f4", (9, 260, 25400), "fused"),
)
WORDS = [replace(words, core=H100) for words in PRESETS.values()]


STACKS = (  # rows and columns of a matrix, and what its kernel multiplies
    *(("residues", 14, "f8", size) for size in (16, 32, 64, 128, 40)),
    *(("digits", 3, "f4", size) for size in (16, 64)),
    *(("residues", 7, "f4", size) for size in (64, 128)),
    *(("residues", 15, "c16", size) for size in (16, 64)),
)


def main(kinds: list[str]) -> int:
    """Multiply all of these kinds, without one of all kinds; return the number of products that differ from NumPy's."""
    cp.cuda.set_allocator(None)  # with a pool, memory past the end of an array is seldom unallocated
    for kind in kinds or _KINDS:
        _KINDS[kind](np.random.default_rng(0))
    return len(_differ)


def stacks(rng: np.random.Generator) -> None:
    """Stacks of small matrices, and products with few inner indices."""
    for scheme, slices, dtype, size in STACKS:
        a, b = (rng.standard_normal((9, size, size)) for _ in range(2))
        if dtype[0] == "c":
            a, b = a + 1j * b, b - 1j * a
        a, b = a.astype(dtype), b.astype(dtype)
        choices = {"scheme": scheme, "slices": slices}
        same(f"a stack of {size}, {dtype}", ozaki.matmul(a, b, **choices), cp.asarray(a), cp.asarray(b), **choices)
        if dtype[0] == "f":
            x, y = a.swapaxes(1, 2), b[0]
            same("broadcast", ozaki.matmul(x, y, accuracy="fp64"), cp.asarray(x), cp.asarray(y), accuracy="fp64")
    a, b = rng.standard_normal((300, 100)), rng.standard_normal((100, 201))
    for slices in (14, 15):
        choices = {"scheme": "residues", "slices": slices}
        same("few inner indices", ozaki.matmul(a, b, **choices), cp.asarray(a), cp.asarray(b), **choices)


def sixteen(rng: np.random.Generator) -> None:
    """Rows of 16-bit floats that digits prove, rows with outliers, and rows whose products are exact."""
    for m in (1, 16, 64, 200):
        a, b = rng.standard_normal((m, 600)), rng.standard_normal((600, 300)).astype("f2")
        a[m // 2 :, 7] *= 100
        a[m // 3, 9:] = 0
        a = a.astype("f2")
        same(f"{m} rows of 16 bits", ozaki.matmul(a, b, accuracy="fp16"), cp.asarray(a), cp.asarray(b), accuracy="fp16")


def large(rng: np.random.Generator) -> None:
    """Products of one matrix, each by the kernels of its size."""
    for case in COUNTED:
        counted(rng, *case)
    with mock.patch.object(choice.winograd, "_FROM", 0):
        for case in QUADRANTS:
            counted(rng, *case)
    with mock.patch.object(tiled, "_LONG", 2), mock.patch.object(word_promoted, "_LONG", 2):
        for case in TOGETHER:
            counted(rng, *case)
        a, b = rng.standard_normal((9, 200)).astype("f4"), rng.standard_normal((200, 27500)).astype("f4")
        words = replace(PRESETS["halfhalf"], core=H100)
        same("halfhalf, together", ozaki.matmul(a, b, scheme=words), cp.asarray(a), cp.asarray(b), scheme=words)
    with mock.patch.object(fused_residues, "_LARGE", 0):  # places by halves of the cache
        counted(rng, "residues", 5, "f4", (600, 300, 700), "fused")
    a, b = rng.standard_normal((300, 400)).astype("f4"), rng.standard_normal((400, 300)).astype("f4")
    for words in WORDS:
        same(words.name, ozaki.matmul(a, b, scheme=words), cp.asarray(a), cp.asarray(b), scheme=words)
    repeated.forget()
    with (
        mock.patch.object(choice.word_promoted, "multiplies", never),
        mock.patch.object(choice.word_pairs, "multiplies", never),
    ):
        for words in (*WORDS, replace(PRESETS["halfhalf"], core=H100, block=16)):
            expected = ozaki.matmul(a, b, scheme=words)
            same(f"{words.name}, mma.sync", expected, cp.asarray(a), cp.asarray(b), scheme=words)
    repeated.forget()
    a, b = rng.standard_normal((300, 2100)).astype("f4"), rng.standard_normal((2100, 300)).astype("f4")
    for words in (PRESETS["halfhalf"], PRESETS["tf32tf32"]):  # rows so long that clusters hold them
        words = replace(words, core=H100)
        same(words.name, ozaki.matmul(a, b, scheme=words), cp.asarray(a), cp.asarray(b), scheme=words)
    for sigma in (1, 3):  # the second needs wide magnitudes
        a, b = (np.exp(sigma * rng.standard_normal(shape)) for shape in ((300, 1400), (1400, 300)))
        same("planned", ozaki.matmul(a, b, reproducible=True), cp.asarray(a), cp.asarray(b), reproducible=True)
    a, b = rng.standard_normal((3, 200, 300)), rng.standard_normal((3, 300, 100))
    batch = {"scheme": "residues", "slices": 14}
    same("a batch", ozaki.matmul(a, b, **batch), cp.asarray(a), cp.asarray(b), **batch)
    for k in (300, 3000):  # small entries, whose lower bounds come from exponents
        a, b = np.eye(300, k), np.ones((k, 300)) * np.exp2(rng.integers(-30, 30, (k, 1)))
        same("far apart", ozaki.matmul(a, b, accuracy="fp64"), cp.asarray(a), cp.asarray(b), accuracy="fp64")
    a, b, c = (rng.standard_normal(shape) for shape in ((300, 200), (200, 301), (300, 602)))
    for some in (slice(301), slice(1, None, 2)):
        expected, out = ozaki.gemm(2, a, b, -0.5, c[:, some], **batch), cp.asarray(c)[:, some]
        compare("gemm", expected, ozaki.gemm(2, cp.asarray(a), cp.asarray(b), -0.5, out, out=out, **batch).get())
    a, b = (rng.standard_normal((2600, 500)).astype("f4") for _ in range(2))
    whole = _describe.describe(a[None]), _describe.describe(b[None])
    compare("a sample", np.array(_describe.sample(a[None], b[None], whole)), sampled(a, b))
    steps = Steps()
    found = steps.evidence(overlap(steps.b, *steps.given(cp.asarray(a)[None], cp.asarray(b)[None])))
    compare("the overlap", np.array(_overlap.overlap(*whole)), np.array(found))
    for x in (a, a[:100]):  # by the fused kernel, and by cuBLAS
        host = _describe.describe(x[None]), whole[1]
        expected = _proof.least_product(_proof.lower_bound(*host, levels(host[0].k)[0]), *host)
        compare("the least product", np.array(expected), least(x, b))
    a, b = rng.integers(-9, 10, (3, 70, 600)).astype("f4")[..., ::2], rng.integers(-9, 10, (300, 130)).astype("f8")
    for y in (b, b.astype("f4")):  # the native product: of converted copies, and of operands as they are
        same("native", a @ y, cp.asarray(a), cp.asarray(y), scheme="native")


def never(words: Words) -> bool:
    """Stands for `multiplies` of the wgmma engines, so that mma.sync multiplies all words."""
    return False


def sampled(*sides: np.ndarray) -> np.ndarray:
    """What `sample` finds on the device, given the largest elements of whole rows."""
    steps = Steps()
    x, y = steps.given(*(cp.asarray(side)[None] for side in sides))
    whole = find_largest(steps.b, x), find_largest(steps.b, y)
    return np.array(steps.evidence(sample(steps.b, x, y, whole)))


def least(*sides: np.ndarray) -> np.ndarray:
    """What `least_product` finds on the device, given the largest elements of rows."""
    steps = Steps()
    given = steps.given(*(cp.asarray(side)[None] for side in sides))
    x, y = (find_largest(steps.b, side) for side in given)
    lower = lower_bound(steps.b, steps.device, x, y, levels(x.k)[0])
    return np.array(steps.evidence(least_product(steps.b, steps.device, lower, x, y)))


def counted(
    rng: np.random.Generator, scheme: str, slices: int, dtype: str, shape: tuple[int, int, int], engine: str
) -> None:
    m, k, n = shape
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    expected = ozaki.matmul(a, b, scheme=scheme, slices=slices)
    for order in ("C", "F"):
        operands = (cp.asarray(np.asarray(x, order=order)) for x in (a, b))
        same(f"{slices} {scheme} {engine}", expected, *operands, scheme=scheme, slices=slices, engine=engine)


def same(label: str, expected: np.ndarray, a: cp.ndarray, b: cp.ndarray, **choices: object) -> None:
    compare(label, expected, ozaki.matmul(a, b, **choices).get())


def compare(label: str, expected: np.ndarray, found: np.ndarray) -> None:
    if differs := found.tobytes() != expected.tobytes():
        _differ.append(label)
    print(label, "DIFFERS" if differs else "ok", flush=True)


_differ: list[str] = []

_KINDS = {"large": large, "stacks": stacks, "sixteen": sixteen}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
