"""The blog post "Improving FP16/16 matmul accuracy with two-stage accumulation"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import ozaki
from benchmarks.seeds.figures import Claim, Figure
from benchmarks.seeds.methods import simt
from ozaki.schemes import PRESETS
from ozaki.tensor_core import A100, mma

SEED = "two-stage"

SCALES = {"small": (16, 1024), "cpu": (128, 4096), "full": (512, 4096)}
"""Rows and columns, and k; 4096 and 4096 in the post."""

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


def figures(scale: str, rng: np.random.Generator) -> Iterator[Figure]:
    """The plot of percentiles."""
    n, k = SCALES[scale]
    a, b = (rng.standard_normal(shape).astype(np.float16).astype(np.float32) for shape in ((n, k), (k, n)))
    reference = simt(a, b).astype(np.float64)
    products = {
        "FP16/32": ozaki.matmul(a, b, scheme=replace(PRESETS["single-fp16"], core=A100)),
        "two-stage": ozaki.matmul(a, b, scheme=replace(PRESETS["two-stage"], core=A100)),
        "FP16/16": mma(a, b, 0, accumulator="fp16", core=A100),
    }
    errors = {name: np.abs(c - reference) for name, c in products.items()}
    series = {name: [(p, float(np.percentile(error, p))) for p in PERCENTILES] for name, error in errors.items()}
    middle = {name: dict(points)[50] for name, points in series.items()}
    above, below = middle["two-stage"] / middle["FP16/32"], middle["FP16/16"] / middle["two-stage"]
    claims = (
        Claim("two-stage has about 100 times the error of FP16/32", f"{above:.0f} times", 25 < above < 400),
        Claim("two-stage has about a tenth of the error of FP16/16", f"1/{below:.1f}", 3 < below < 30),
    )
    differs = (
        f"{n} rows and columns; on the model of the A100, whose tensor cores add eight products at once as those of "
        "the RTX 4090 do. Two-stage promotes after every instruction of 16, and scales rows and columns."
    )
    yield Figure(
        "Percentiles", f"Absolute error against FP32, N(0, 1), k = {k}", "percentile", "absolute error", series, claims,
        differs, "y",
    )  # fmt: skip
