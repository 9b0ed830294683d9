"""Contractions of arrays out of matrix products, by whatever function multiplies matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import index as integer_of
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from ozaki.interchange.halves import ONE, HalfArray, half_format_of, narrowed, widened
from ozaki.multiprecision.arithmetic import with_bits
from ozaki.multiprecision.array import MPArray
from ozaki.multiprecision.convert import exactly
from ozaki.multiprecision.floats import of_integers
from ozaki.multiprecision.limbs import library
from ozaki.multiprecision.numbers import Integers, Numbers
from ozaki.records.formats import STORED_AS, part_of

Multiply = Callable[[Any, Any], Any]
"""Multiplies stacks of matrices, as `matmul` does."""


def tensordot_by(a: Any, b: Any, axes: Any, multiply: Multiply) -> Any:
    """`tensordot` by one call of `multiply`.

    Raises
    ------
    ValueError, TypeError
        If the axes do not fit.
    """
    try:
        count = integer_of(axes)
    except TypeError:
        of_a, of_b = axes
        sums_a = normalize_axis_tuple(of_a, a.ndim, "axes of a")
        sums_b = normalize_axis_tuple(of_b, b.ndim, "axes of b")
    else:
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ValueError(f"axes: {count}; a has {a.ndim} axes, and b {b.ndim}")
        sums_a, sums_b = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    sizes = [a.shape[axis] for axis in sums_a], [b.shape[axis] for axis in sums_b]
    if sizes[0] != sizes[1]:
        raise ValueError(f"axes: those of a have sizes {sizes[0]}, those of b {sizes[1]}; expected equal ones")
    free_a = [axis for axis in range(a.ndim) if axis not in sums_a]
    free_b = [axis for axis in range(b.ndim) if axis not in sums_b]
    rows, columns = [a.shape[axis] for axis in free_a], [b.shape[axis] for axis in free_b]
    left = a.transpose(*free_a, *sums_a).reshape(prod(rows), prod(sizes[0]))
    right = b.transpose(*sums_b, *free_b).reshape(prod(sizes[0]), prod(columns))
    return multiply(left, right).reshape((*rows, *columns))


def einsum_by(subscripts: str, operands: Sequence[Any], multiply: Multiply, always: bool = False) -> Any:
    """`einsum` by calls of `multiply`; of floats, products without sums are NumPy's or CuPy's, unless `always`.

    Raises
    ------
    ValueError
        If the subscripts do not fit the operands.
    """
    labels, result = _labels(subscripts, operands)
    sizes = _sizes(labels, operands)
    if len(operands) > 2 or _sums_one_alone(labels, result):
        operands = of_one_precision(operands)
    terms = [_squeezed(*_diagonal(x, of), sizes) for x, of in zip(operands, labels, strict=True)]
    for step in _path(labels, result, [x.shape for x in operands]):
        chosen = [terms.pop(place) for place in sorted(step, reverse=True)]
        term = chosen.pop()
        while chosen:
            other = chosen.pop()
            kept = set(result).union(*(of for _, of in terms + chosen))
            term = _contracted(term, other, kept, multiply, always)
        terms.append(term)
    if always and len(operands) == 1 and set(terms[0][1]) <= set(result):  # nothing was multiplied
        x, of = terms[0]
        terms = [(multiply(x[..., None], _ones(x, (1, 1))).reshape(x.shape), of)]
    c, of = _summed(terms[0], set(result), multiply)
    return c.transpose([of.index(label) for label in result])


def _sums_one_alone(labels: list[Labels], result: Labels) -> bool:
    """Whether an operand has an axis that no other one has, nor the result: it is summed before a product."""
    return any(sum(label in of for of in labels) == 1 for of in labels for label in {*of} - {*result})


def shape_of_einsum(subscripts: str, operands: Sequence[Any]) -> tuple[int, ...]:
    """The shape of the result of `einsum`.

    Raises
    ------
    ValueError
        If the subscripts do not fit the operands.
    """
    labels, result = _labels(subscripts, operands)
    sizes = _sizes(labels, operands)
    return tuple(sizes.get(label, 1) for label in result)


def of_one_precision(operands: Sequence[Any]) -> list[Any]:
    """Operands in the precision of the longest: multiprecision, if one of them is, else float64, if one of them is.

    So a product of two of them, or a sum of one, is not rounded to fewer bits than the result has. Integers, whose
    products and sums are exact where they are not rounded to a dtype that is asked for, stay as they are.
    """
    if any(half_format_of(x) for x in operands):  # all of one format
        return [*operands]
    if any(isinstance(x, Numbers) for x in operands):
        numbers = [exactly(x, f"operand {place}") for place, x in enumerate(operands)]
        bits = max(x.bits for x in numbers)
        return [x if isinstance(x, Integers) else MPArray._of(with_bits(x, bits)) for x in numbers]
    if not any(x.dtype.kind in "fc" and part_of(x.dtype.name) == "float64" for x in operands):
        return [*operands]
    return [x.astype(np.result_type(x.dtype, np.float64), copy=False) if x.dtype.kind in "fc" else x for x in operands]


Labels = tuple[Any, ...]
"""The labels of an operand's axes: letters, and integers for those of "...", counted from the last."""


def _labels(subscripts: str, operands: Sequence[Any]) -> tuple[list[Labels], Labels]:
    """The labels of the operands and of the result.

    Raises
    ------
    ValueError
        If they do not fit.
    """
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    names = inputs.split(",")
    if len(names) != len(operands):
        raise ValueError(f"subscripts: {subscripts!r} names {len(names)} operands, but there are {len(operands)}")
    labels = [_of_operand(subscripts, name, x.ndim) for name, x in zip(names, operands, strict=True)]
    sizes: dict[Any, int] = {}
    for place, (of, x) in enumerate(zip(labels, operands, strict=True)):
        own: dict[Any, int] = {}  # a diagonal is of axes of one size, also where one of them could be broadcast
        for label, size in zip(of, x.shape, strict=True):
            if own.setdefault(label, size) != size:
                raise ValueError(
                    f"subscripts: axes {label!r} of operand {place} have sizes {own[label]} and {size}; expected equal "
                    "ones"
                )
            if sizes.setdefault(label, size) != size:
                if 1 in (sizes[label], size):  # such axes are broadcast
                    sizes[label] = size if sizes[label] == 1 else sizes[label]
                    continue
                raise ValueError(
                    f"subscripts: axis {label!r} has size {size} in operand {place}, and {sizes[label]} before"
                )
    batch = sorted({label for of in labels for label in of if isinstance(label, int)})
    if arrow:
        head, dots, tail = output.partition("...")
        result = (*head, *(batch if dots else ()), *tail)
    else:
        letters = [letter for name in names for letter in name if letter != "."]
        result = (*batch, *sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    known = {label for of in labels for label in of}
    if len(set(result)) < len(result) or not set(result) <= known:
        raise ValueError(f"subscripts: {subscripts!r}; expected each axis of the result once, out of those of operands")
    if arrow and batch and not any(isinstance(label, int) for label in result):
        raise ValueError(f"subscripts: {subscripts!r}; expected '...' in the result, too")
    return labels, result


def _sizes(labels: list[Labels], operands: Sequence[Any]) -> dict[Any, int]:
    """The sizes of axes, by their labels, but for those of size 1 in all operands."""
    return {
        label: x.shape[axis]
        for x, of in zip(operands, labels, strict=True)
        for axis, label in enumerate(of)
        if x.shape[axis] != 1
    }


def _of_operand(subscripts: str, name: str, ndim: int) -> Labels:
    """The labels of the axes of one operand, which `name` in the subscripts stands for.

    Raises
    ------
    ValueError
        If they do not fit it.
    """
    head, dots, tail = name.partition("...")
    count = ndim - len(head) - len(tail)
    if not (head + tail).isalpha() and head + tail:
        raise ValueError(f"subscripts: {subscripts!r}; expected letters, '...', ',' and '->'")
    if count < 0 or (count and not dots):
        raise ValueError(f"subscripts: {name!r} does not fit an operand of {ndim} axes")
    return (*head, *range(-count, 0), *tail)


def _path(labels: list[Labels], result: Labels, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Which operands are contracted, step by step: their places among those that are left, and the result the last."""
    if len(labels) < 3:
        return [tuple(range(len(labels)))]
    known = {label: None for of in labels for label in of}
    if len(known) > len(ascii_letters):  # more than NumPy has letters for
        return [tuple(range(len(labels)))]
    names = dict(zip(known, ascii_letters, strict=False))
    text = ",".join("".join(names[label] for label in of) for of in labels)
    shaped = [np.broadcast_to(np.float64(0), shape) for shape in shapes]
    path, _ = np.einsum_path(f"{text}->{''.join(names[label] for label in result)}", *shaped, optimize="greedy")
    steps: list[tuple[int, ...]] = path[1:]
    return steps


Term = tuple[Any, Labels]
"""An array and the labels of its axes."""


def _diagonal(x: Any, of: Labels) -> Term:
    """The diagonal along axes of one label."""
    while len(set(of)) < len(of):
        first, second = next((i, j) for j in range(len(of)) for i in range(j) if of[i] == of[j])
        x = x.diagonal(axis1=first, axis2=second)
        of = (*(label for place, label in enumerate(of) if place not in (first, second)), of[first])
    return x, of


def _squeezed(x: Any, of: Labels, sizes: dict[Any, int]) -> Term:
    """A term without axes of size 1 along which others have more, given by `sizes`: it is broadcast along these."""
    places = [axis for axis, label in enumerate(of) if x.shape[axis] == 1 and label in sizes]
    kept = [axis for axis in range(x.ndim) if axis not in places]
    return x.reshape(tuple(x.shape[axis] for axis in kept)), tuple(of[axis] for axis in kept)


def _summed(term: Term, kept: set[Any], multiply: Multiply) -> Term:
    """The sums along axes whose labels are not kept: a product with ones."""
    x, of = term
    sums = [axis for axis, label in enumerate(of) if label not in kept]
    if not sums:
        return term
    free = [axis for axis in range(x.ndim) if axis not in sums]
    sizes, length = [x.shape[axis] for axis in free], prod(x.shape[axis] for axis in sums)
    rows = x.transpose(*free, *sums).reshape(prod(sizes), length)
    return multiply(rows, _ones(x, (length, 1))).reshape(tuple(sizes)), tuple(of[axis] for axis in free)


def _ones(x: Any, shape: tuple[int, ...]) -> Any:
    """Ones of the kind and the dtype of x."""
    if isinstance(x, HalfArray):
        return HalfArray(library(x.bits).full(shape, ONE[x.format], STORED_AS), x.format)
    if not isinstance(x, Numbers):
        return library(x).full(shape, 1, x.dtype)
    ones = of_integers(x.library.full(shape, 1, np.int8))
    return Integers.of(ones) if isinstance(x, Integers) else MPArray._of(ones)


def _times(a: Any, b: Any) -> Any:
    """The product of two arrays, element by element, each rounded once: of 16-bit floats float32 holds it exactly."""
    if not isinstance(a, HalfArray):
        return a * b
    with np.errstate(all="ignore"):
        return narrowed(widened(a) * widened(b), a.format)


def _contracted(first: Term, second: Term, kept: set[Any], multiply: Multiply, always: bool) -> Term:
    """The product of two arrays, summed over the labels that both have and nobody keeps."""
    a, of_a = _summed(first, kept | set(second[1]), multiply)
    b, of_b = _summed(second, kept | set(of_a), multiply)
    batch = [label for label in of_a if label in of_b and label in kept]
    sums = [label for label in of_a if label in of_b and label not in kept]
    free_a, free_b = ([label for label in of if label not in batch + sums] for of in (of_a, of_b))
    labels = (*batch, *free_a, *free_b)
    a = a.transpose([of_a.index(label) for label in (*batch, *free_a, *sums)])
    b = b.transpose([of_b.index(label) for label in (*batch, *sums, *free_b)])
    count, rows, columns = len(batch), a.shape[len(batch) : len(batch) + len(free_a)], b.shape[len(batch) + len(sums) :]
    if not sums and not (always or isinstance(a, Numbers) or isinstance(b, Numbers)):
        b = b.reshape((*b.shape[:count], *(1,) * len(rows), *columns))
        a = a.reshape((*a.shape, *(1,) * len(free_b)))
        return _times(a, b), labels
    length = prod(b.shape[count : count + len(sums)])
    left, right = (*a.shape[:count], prod(rows), length), (*b.shape[:count], length, prod(columns))
    c = multiply(a.reshape(left), b.reshape(right))
    return c.reshape((*c.shape[:-2], *rows, *columns)), labels
