"""The routines that a task compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import ozaki
from ozaki.schemes import PRESETS
from ozaki.schemes.named import scheme_of

TASKS = ("float64", "float32")

COMPLEX = ("complex128", "complex64")
"""Tasks that the README has no tables of."""

SQUARE = (*TASKS, *COMPLEX)
"""Tasks that multiply square matrices, of the format that the task is named after."""

OURS: dict[str, dict[str, dict[str, Any]]] = {
    "float64": {
        "ozaki default": {"reproducible": True},
        "ozaki residues 14": {"scheme": "residues", "slices": 14},
        "ozaki residues 15": {"scheme": "residues", "slices": 15},
        "ozaki exact": {"accuracy": "exact"},
    },
    "float32": {
        "ozaki default": {"reproducible": True},
        "ozaki exact": {"accuracy": "exact"},
        "ozaki digits 3": {"scheme": "digits", "slices": 3},
        "ozaki residues 7": {"scheme": "residues", "slices": 7},
    },
    "complex128": {
        "ozaki default": {"reproducible": True},
        "ozaki residues 15": {"scheme": "residues", "slices": 15},
    },
    "complex64": {
        "ozaki default": {"reproducible": True},
        "ozaki residues 8": {"scheme": "residues", "slices": 8},
    },
    "shapes": {
        "ozaki residues 14": {"scheme": "residues", "slices": 14},
        "ozaki residues 14, cuBLAS": {"scheme": "residues", "slices": 14, "engine": "cublas"},
    },
    "stacks float64": {
        "ozaki residues 14": {"scheme": "residues", "slices": 14},
        "ozaki default": {"reproducible": True},
    },
    "stacks float32": {
        "ozaki digits 3": {"scheme": "digits", "slices": 3},
        "ozaki default": {"reproducible": True},
    },
    "stacks complex128": {
        "ozaki residues 15": {"scheme": "residues", "slices": 15},
        "ozaki default": {"reproducible": True},
    },
    "choices float64": {"ozaki fastest": {}, "ozaki residues 14": {"scheme": "residues", "slices": 14}},
    "choices float32": {
        "ozaki fastest": {},
        "ozaki halfhalf": {"scheme": "halfhalf"},
        "ozaki digits 3": {"scheme": "digits", "slices": 3},
        "ozaki residues 7": {"scheme": "residues", "slices": 7},
    },
}
"""Our routines by task: options of `ozaki.matmul`. The default plans from data in every call, the others before it."""

ON_GPU: dict[str, dict[str, dict[str, Any]]] = {
    "float64": {"ozaki residues 14, cuBLAS": OURS["shapes"]["ozaki residues 14, cuBLAS"], "ozaki fastest": {}},
    "float32": {
        "ozaki fastest": {},
        **{f"ozaki {name}": {"scheme": name} for name in ("halfhalf", "tf32tf32")},
    },
}
"""Our routines on a GPU only: other engines, products without a named accuracy, and words (too slow on NumPy)."""


@dataclass(frozen=True)
class Account:
    """What is known of a product apart from its result.

    Attributes
    ----------
    bound : proven componentwise bound for these operands, None without one
    products : number of slice products
    ran : the slices that a default chose; None if the options left no choice
    """

    bound: float | None
    products: int
    ran: str | None = None


@dataclass(frozen=True)
class Routine:
    """A way to multiply.

    Attributes
    ----------
    name : name in result files
    ours : whether it is a routine of this library
    multiply : function of (a, b, out) that is timed
    account : function of (a, b) that returns an `Account`; not timed
    """

    name: str
    ours: bool
    multiply: Callable[[Any, Any, Any], object]
    account: Callable[[Any, Any], Account]


def routines(task: str, xp: Any, blas: str, peers: Iterable[Routine] = ()) -> list[Routine]:
    """The routines of a task, the native product first, those of other libraries last."""
    proven = task in SQUARE or task.startswith("stacks")
    native = Routine(
        f"{blas} {_NATIVE.get(task.split()[-1], 'dgemm')}",
        False,
        lambda a, b, out: xp.matmul(a, b, out=out),
        lambda a, b: planned(a, b, {"scheme": "native"}) if proven else Account(None, 1),
    )
    options_of = OURS[task] | (ON_GPU.get(task, {}) if xp.__name__ == "cupy" else {})
    ours = [_ours(name, options, proven) for name, options in options_of.items()]
    return [native, *ours, *peers]


_NATIVE = {"float32": "sgemm", "complex128": "zgemm", "complex64": "cgemm"}
"""Names of native products by format, but for that of float64."""


def _ours(name: str, options: dict[str, Any], proven: bool) -> Routine:
    return Routine(
        name,
        True,
        lambda a, b, out: ozaki.matmul(a, b, out=out, **options),
        lambda a, b: planned(a, b, options) if proven or not options else Account(None, products_of(options)),
    )


def products_of(options: dict[str, Any]) -> int:
    """The number of slice products that these options, which name a scheme, take."""
    named = PRESETS.get(options["scheme"]) or scheme_of(options["scheme"], options["slices"])
    return named.products


def planned(a: Any, b: Any, options: dict[str, Any]) -> Account:
    """The account of our plan for these operands, for which its bound is proven even if the count is given."""
    plan = ozaki.plan(a, b, **options)
    bound = plan.bound if plan.target.measure == "componentwise" and isfinite(plan.bound) else None
    chosen = plan.scheme is not None and "scheme" not in options
    return Account(bound, plan.products, f"{plan.slices} {plan.scheme.name}" if chosen and plan.scheme else None)
