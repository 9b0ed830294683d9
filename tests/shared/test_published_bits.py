"""The bits of some products are those in bits.json, in every version and on every device.

An intended change of bits is listed in the changelog; `python tests/shared/test_published_bits.py` then rewrites the
file.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import ozaki

HERE = Path(__file__).with_name("bits.json")

WAYS = [
    *({"scheme": "residues", "slices": count} for count in (5, 9, 14, 20, 28)),
    *({"scheme": "digits", "slices": count} for count in (1, 3, 7, 8)),
    {"scheme": "digits7", "slices": 8},
    {"scheme": "fp16-digits", "slices": 4},
    *({"accuracy": accuracy, "reproducible": True} for accuracy in ("fp32", "fp64", 80, 1e-9)),
    *({"accuracy": ozaki.Accuracy(measure, 1e-14), "reproducible": True} for measure in ("row-column", "normwise")),
    {"reproducible": True},
]


def numbers(seed, count):
    """Integers of 64 bits that look random, the same with every version of NumPy (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def matrix(seed, shape, span, dtype):
    """Full significands, both signs, exponents over `span` binary orders, one zero in eight."""
    size = int(np.prod(shape))
    significand, other = np.split(numbers(seed, 2 * size), 2)
    x = (significand >> np.uint64(12)).astype(np.float64) * 2.0**-52 + 1.0
    x = np.ldexp(x, (other >> np.uint64(8)).astype(np.int64) % (span + 1) - span // 2)
    x[other & np.uint64(1) == 1] *= -1
    x[(other >> np.uint64(40)) % np.uint64(8) == 0] = 0
    return x.reshape(shape).astype(dtype)


def product(i):
    """The operands and the options of product i."""
    m, k, n, span, dtype = (int(x) for x in numbers(1000 + i, 5))
    k = k % 1500 + 1 if i % 9 == 0 else k % 50 + 1
    a = matrix(2 * i, (m % 40 + 1, k), (0, 6, 40)[span % 3], ("f4", "f8")[dtype % 2])
    b = matrix(2 * i + 1, (k, n % 40 + 1), (0, 6, 40)[span % 3], ("f4", "f8")[dtype % 2])
    return a, b, WAYS[i % len(WAYS)]


COUNT = 12 * len(WAYS)


def digest(c, report):
    """The entry of bits.json for a product: its plan, and a hash of its bits."""
    return f"{report.slices} {report.scheme} {hashlib.sha256(np.ascontiguousarray(c).tobytes()).hexdigest()[:24]}"


@pytest.mark.parametrize("part", range(12))
def test_bits(device, rng, part):
    published = json.loads(HERE.read_text())
    for i in device.some(range(part, COUNT, 12), 1 if part < 4 else 0, rng):
        a, b, options = product(i)
        assert digest(*device.matmul(a, b, return_report=True, **options)) == published[i], (i, options)


if __name__ == "__main__":
    found = []
    for i in range(COUNT):
        a, b, options = product(i)
        found.append(digest(*ozaki.matmul(a, b, return_report=True, **options)))
    HERE.write_text(json.dumps(found, indent=1) + "\n")
