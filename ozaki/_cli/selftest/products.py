"""The products of the self-test: by residues and digits alone, whose bits are the same on every device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ozaki
from ozaki import Accuracy
from ozaki._cli.selftest.numbers import complex_numbers, multiprecision, real, wholes

Made = Callable[[int], Any]
"""A function that makes an operand from a seed."""


@dataclass(frozen=True)
class Product:
    """A product of the self-test. Its hash is published, so it stays as it is: another one gets another name.

    Attributes
    ----------
    group : what it has in common with others
    name : what it is, unlike all others of its group; its numbers depend on both names alone
    a, b : the operands; without b, it is A times the transpose of A
    options : those of `ozaki.matmul` or `ozaki.gemm`; the native product and words are ruled out
    factors, c : of gemm, alpha A B + beta C: (alpha, beta), and C
    """

    group: str
    name: str
    a: Made
    b: Made | None
    options: dict[str, Any]
    factors: tuple[float, float] = (1, 0)
    c: Made | None = field(default=None)

    def compute(self, placed: Callable[[Any], Any]) -> Any:
        """Return the product, computed where the function `placed` copies its operands to."""
        seed = int.from_bytes(hashlib.sha256(f"{self.group}: {self.name}".encode()).digest()[:7], "little")
        a = placed(self.a(seed))
        b = a.T if self.b is None else placed(self.b(seed + 1))
        options = {"reproducible": True, **self.options}
        if self.c is None:
            return ozaki.matmul(a, b, **options)
        alpha, beta = self.factors
        return ozaki.gemm(alpha, a, b, beta, placed(self.c(seed + 2)), **options)


def _floats(*shape: int, dtype: str = "float64", span: int = 6, top: int = 0) -> Made:
    return partial(real, shape=shape, dtype=dtype, span=span, top=top)


def _complex(*shape: int, dtype: str = "complex128") -> Made:
    return partial(complex_numbers, shape=shape, dtype=dtype)


def _numbers(*shape: int) -> Made:
    return partial(multiprecision, shape=shape)


def _slices(scheme: str, count: int) -> dict[str, Any]:
    return {"scheme": scheme, "slices": count}


_single = partial(_floats, dtype="float32")
_single_complex = partial(_complex, dtype="complex64")
_wide = partial(_floats, span=200)

PRODUCTS = (
    Product("float64", "14 residues", _floats(20, 30), _floats(30, 10), _slices("residues", 14)),
    Product("float64", "20 residues", _floats(33, 1), _floats(1, 17), _slices("residues", 20)),
    Product("float64", "7 digits", _floats(20, 30), _floats(30, 10), _slices("digits", 7)),
    Product("float64", "8 digits of 7 bits", _floats(9, 40), _floats(40, 9), _slices("digits7", 8)),
    Product("float64", "fp64", _floats(40, 40), _floats(40, 40), {"accuracy": "fp64"}),
    Product("float64", "80 bits, a long inner dimension", _floats(7, 5000), _floats(5000, 5), {"accuracy": 80}),
    Product("float64", "no accuracy named", _floats(50, 20), _floats(20, 60), {}),
    Product(
        "float64", "1e-12 of each entry", _floats(20, 6), _floats(6, 20), {"accuracy": Accuracy("relative", 1e-12)}
    ),
    Product("float32", "7 residues", _single(20, 30), _single(30, 10), _slices("residues", 7)),
    Product("float32", "3 digits", _single(20, 30), _single(30, 10), _slices("digits", 3)),
    Product("float32", "fp32", _single(40, 1500), _single(1500, 40), {"accuracy": "fp32"}),
    Product("float32", "times float64, 1e-9", _single(12, 25), _floats(25, 12), {"accuracy": 1e-9}),
    Product("magnitudes that spread", "fp64", _wide(12, 40), _wide(40, 12), {"accuracy": "fp64"}),
    Product("magnitudes that spread", "20 residues", _wide(12, 40), _wide(40, 12), _slices("residues", 20)),
    Product("magnitudes that spread", "7 digits", _wide(12, 40), _floats(40, 12), _slices("digits", 7)),
    Product(
        "magnitudes that spread",
        "1e-14 of the norms of row and column",
        _wide(12, 40),
        _wide(40, 12),
        {"accuracy": Accuracy("row-column", 1e-14)},
    ),
    Product(
        "magnitudes that spread",
        "float32, 1e-14 of the norms of the matrices",
        _single(12, 40, span=60),
        _single(40, 12, span=60),
        {"accuracy": Accuracy("normwise", 1e-14)},
    ),
    Product("magnitudes that spread", "into subnormal numbers", _floats(9, 9, top=-530), _floats(9, 9, top=-530), {}),
    Product("magnitudes that spread", "into infinity", _single(9, 9, top=63), _single(9, 9, top=66), {}),
    Product("complex", "14 residues", _complex(15, 20), _complex(20, 10), _slices("residues", 14)),
    Product("complex", "7 digits", _complex(15, 20), _complex(20, 10), _slices("digits", 7)),
    Product("complex", "fp64", _complex(20, 20), _complex(20, 20), {"accuracy": "fp64"}),
    Product("complex", "complex64", _single_complex(15, 20), _single_complex(20, 10), {}),
    Product("complex", "times float64, fp64", _complex(15, 20), _floats(20, 10), {"accuracy": "fp64"}),
    Product(
        "complex",
        "alpha A B^H + beta C, complex64",
        _single_complex(15, 20),
        _single_complex(10, 20),
        {"trans_b": "C"},
        (-2, 0.5),
        _single_complex(15, 10),
    ),
    Product(
        "multiprecision", "106 bits of float64", _floats(15, 20), _floats(20, 10), {"accuracy": 106, "dtype": "mp"}
    ),
    Product("multiprecision", "exact of float64", _floats(9, 20), _floats(20, 9), {"accuracy": "exact", "dtype": "mp"}),
    Product("multiprecision", "212 bits", _numbers(12, 16), _numbers(16, 8), {"accuracy": 212}),
    Product("multiprecision", "times float64", _numbers(12, 16), _floats(16, 8), {}),
    Product(
        "multiprecision", "into float64", _numbers(12, 16), _numbers(16, 8), {"accuracy": "fp64", "dtype": "float64"}
    ),
    Product("multiprecision", "complex, 106 bits", _complex(9, 12), _complex(12, 9), {"accuracy": 106, "dtype": "mp"}),
    Product(
        "multiprecision",
        "int64",
        partial(wholes, shape=(12, 16), bits=28),
        partial(wholes, shape=(16, 8), bits=28),
        {"dtype": "int64"},
    ),
    Product("stacks and vectors", "one stack", _floats(3, 12, 16), _floats(16, 8), {"accuracy": "fp64"}),
    Product("stacks and vectors", "two stacks", _floats(2, 1, 12, 16), _floats(3, 16, 8), {"accuracy": "fp64"}),
    Product("stacks and vectors", "matrix times vector", _floats(30, 40), _floats(40), {"accuracy": "fp64"}),
    Product("stacks and vectors", "two vectors, dd", _floats(300), _floats(300), {"accuracy": "dd"}),
    Product(
        "alpha A B + beta C",
        "14 residues",
        _floats(20, 30),
        _floats(30, 10),
        _slices("residues", 14),
        (1.5, -2),
        _floats(20, 10),
    ),
    Product(
        "alpha A B + beta C", "fp64", _floats(20, 30), _floats(30, 10), {"accuracy": "fp64"}, (-1, 1), _floats(20, 10)
    ),
    Product(
        "alpha A B + beta C",
        "a residual, dd",
        _floats(20, 20),
        _floats(20, 1),
        {"accuracy": "dd"},
        (-1, 1),
        _floats(20, 1),
    ),
    Product("alpha A B + beta C", "float32", _single(20, 30), _single(30, 10), {}, (0.1, 3), _single(20, 10)),
    Product("A A^T", "float64, fp64", _floats(40, 30), None, {"accuracy": "fp64"}),
    Product("A A^T", "complex64", _single_complex(20, 30), None, {}),
)
