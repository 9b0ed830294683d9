"""The ways a product may run, natively, out of words or out of slices: the fastest that proves what is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Literal

from ozaki import _bounds, _word_bounds
from ozaki._accuracy import Accuracy
from ozaki._checks import check_native, suffices
from ozaki._operands import Shapes
from ozaki._plan import Plan, choose_a_priori, default_accuracy
from ozaki.backends import Backend
from ozaki.schemes import PRESETS, Scheme, Words
from ozaki.schemes.formats import FORMATS


def native_bound(backend: Backend, k: int, dtype: str) -> float:
    """What the native product proves, roundings included; inf where a setting makes it less than an IEEE product."""
    return inf if backend.native_obstacle(dtype) else _bounds.native(max(k, 1), dtype)


def native_plan(sizes: Shapes, dtype: str, target: Accuracy | None, bound: float, why: str) -> Plan:
    """The plan of the native product: its bound is componentwise, and so holds in every measure."""
    target = target or default_accuracy(dtype, sizes.shape[1])
    return Plan(sizes.shape, sizes.batch, dtype, None, target, bound, True, why=why)


def fastest_way(
    backend: Backend,
    sizes: Shapes,
    dtype: str,
    target: Accuracy | None,
    scheme: str,
    engine: str,
    reproducible: bool,
    bound: float,
) -> tuple[Words | Literal["native", "slices"], str]:
    """What runs, the native product with that bound, slices or words, and why."""
    obstacle = backend.native_obstacle(dtype)
    if scheme == "native":
        check_native(dtype, target, engine, reproducible, bound)
        return "native", f"{NATIVE_ASKED_FOR}; {obstacle}" if obstacle else NATIVE_ASKED_FOR
    if scheme != "auto":
        return "slices", ""
    if reproducible:
        return "slices", "native product ruled out by reproducible=True"
    if engine != "auto":
        return "slices", f"native product ruled out by engine={engine!r}"
    ruled_out = obstacle or ""
    if not obstacle and target is not None and not suffices(bound, target, dtype):
        ruled_out = f"native product proves only {bound:.2g}"
    k = sizes.shape[1]
    words = _words_as_good(backend, k, dtype, target)
    if ruled_out and not words:
        return "slices", ruled_out
    slices = _likely(target or default_accuracy(dtype, k), max(k, 1))
    way = backend.fastest(sizes.stack, k, dtype, (slices, *words) if ruled_out else (slices, *words, None))
    asked = "no accuracy is named" if target is None else "it proves what is asked"
    if way is None:
        return "native", f"native product: fastest here, and {asked}"
    if isinstance(way, Words):
        no_more = ", and the native product proves no more" if target is None else ""
        return way, f"{way.name}: fastest here, and {asked}{no_more}"
    return "slices", ruled_out or "slices are faster here than the native product"


def _words_as_good(backend: Backend, k: int, dtype: str, target: Accuracy | None) -> tuple[Words, ...]:
    """Words that may prove what is asked: no less than the native product for any operands, if nothing is.

    Their root-mean-square error on ordinary data is below that of a native float32 product, promoted as they are.
    """
    words = PRESETS["halfhalf"]
    if dtype != "float32" or backend.words_obstacle(words):
        return ()
    if target is None:
        return (words,) if _word_bounds.a_priori(words, max(k, 1)) <= _bounds.native(max(k, 1), dtype) else ()
    usual = target.bits is None or target.bits <= FORMATS["fp32"].bits
    return (words,) if usual and _word_bounds.relative(words, max(k, 1)) <= target.tolerance else ()


@lru_cache(maxsize=1024)
def _likely(target: Accuracy, k: int) -> Scheme:
    """What ordinary data will need."""
    return choose_a_priori(replace(target, measure="row-column"), k, names_of("auto")).scheme


NATIVE_ASKED_FOR = "native product: asked for by scheme='native'"


def names_of(scheme: str) -> tuple[str, ...]:
    """The schemes to choose from; the first wins a tie."""
    return ("digits", "residues") if scheme == "auto" else (scheme,)
