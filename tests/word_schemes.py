"""Word schemes of every kind: the presets, and combinations of choices that no preset has."""

from dataclasses import replace

from ozaki import Words
from ozaki.schemes import PRESETS
from ozaki.tensor_core import A100, V100, TensorCore

OTHERS = {
    "halfhalf as published": Words("fp16", 2, scale_bits=11, block=64, promotion="fp32"),
    "two words in one accumulator, promoted": Words("fp16", 2, block=32, promotion="fp32", accumulators="one"),
    "one accumulator, a diagonal left out": Words(
        "bf16", 3, scale_bits=7, pairs=((3, 1), (1, 3), (1, 1)), block=16, promotion="fp64", accumulators="one"
    ),
    "three words of fp16": Words("fp16", 3, scale_bits=11, block=16, promotion="fp64"),
    "all pairs of bf16": Words("bf16", 2, scale_bits=8, pairs=((2, 2), (1, 1), (2, 1), (1, 2)), accumulators="pair"),
    "toward zero": Words("tf32", 2, rounding="RZ"),
    "halfhalf on A100": replace(PRESETS["halfhalf"], core=A100),
    "markidis on V100": replace(PRESETS["markidis"], core=V100),
    "two-stage on V100": replace(PRESETS["two-stage"], core=V100, block=32),
    "rounded to nearest": Words("fp16", 1, core=TensorCore("mine", 24, 8, "RN")),
}
ALL = {**PRESETS, **OTHERS}
