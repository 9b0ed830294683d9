"""Tensor cores and words by their definitions, one number at a time in exact rationals."""

from fractions import Fraction

import numpy as np
from cases import power

from ozaki.schemes.formats import FORMATS, depth


def exponent(x, form):
    """The exponent field of a nonzero number."""
    return max(int(np.frexp(x)[1]) - 1, form.least)


def nearest(value, form, rounding):
    """A Fraction rounded to a format."""
    if value == 0:
        return Fraction(0)
    size = abs(value)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e -= size < power(e)
    ulp = power(max(e, form.least) - form.bits + 1)
    units, rest = divmod(size, ulp)
    if rounding == "RNA":
        units += 2 * rest >= ulp
    elif rounding == "RN":
        units += 2 * rest > ulp or (2 * rest == ulp and units % 2 == 1)
    return units * ulp if value > 0 else -units * ulp


def fused_sum(a, b, c, word, accumulator, core):
    terms = [
        (Fraction(x) * Fraction(y), exponent(x, word) + exponent(y, word)) for x, y in zip(a, b, strict=True) if x * y
    ]
    terms += [(Fraction(c), exponent(c, accumulator))] if c else []
    unit = power(max([FORMATS["fp32"].least, *(e for _, e in terms)]) - core.alignment_bits)
    total = sum((int(value / unit) * unit for value, _ in terms), Fraction(0))
    return float(nearest(total, accumulator, core.rounding if accumulator.bits == 24 else "RN"))


def mma_by_definition(a, b, c, word, accumulator, core):
    """D = A B + C as the docstring of `ozaki.tensor_core.mma` defines it."""
    d = np.array(c, float)
    step, terms = depth(word), core.terms(word)
    for i, j in np.ndindex(d.shape):
        for first in range(0, a.shape[1], step):
            for h in range(first, min(first + step, a.shape[1]), terms):
                at = slice(h, min(h + terms, first + step))
                d[i, j] = fused_sum(
                    a[i, at].tolist(), b[at, j].tolist(), d[i, j], FORMATS[word], FORMATS[accumulator], core
                )
    return d


def words_by_definition(a, b, words):
    """The product of finite float32 matrices in words, as docs/definitions.md, section 7, has it."""
    (a, mu), (b, nu) = (scaled(x, words) for x in (a, b.T))
    left, right = split(a, words), split(b, words)
    p = words.count
    pairs = words.pairs or [(s, t) for s in range(1, p + 1) for t in range(1, p + 1) if s + t <= p + 1]
    sums = []  # groups of pairs that share an accumulator, low words first
    for pair in sorted(pairs, key=lambda pair: (-sum(pair), -pair[0])):
        shares = words.accumulators == "one" or (
            words.accumulators == "diagonal" and sums and sum(sums[-1][0]) == sum(pair)
        )
        if sums and shares:
            sums[-1].append(pair)
        else:
            sums.append([pair])
    total = None
    for share in sums:
        value = accumulated(left, right, share, words)
        value *= 2.0 ** -(words.scale_bits * (sum(share[-1]) - 2))
        total = value if total is None else outer(total + value, words)
    return np.ldexp(total, -np.add.outer(mu, nu)).astype(np.float32)


def scaled(x, words):
    """Rows times powers of two: the largest element of each in [2**(ceiling-1), 2**ceiling)."""
    largest = np.abs(x).astype(float).max(axis=1)
    mu = np.where(largest > 0, words.ceiling - np.frexp(largest)[1], 0)
    return np.ldexp(x.astype(float), mu[:, None]), mu


def split(x, words):
    parts, left = [], [[Fraction(v) for v in row] for row in x.tolist()]
    for s in range(words.count):
        scale = power(words.scale_bits * s)
        part = [[nearest(v * scale, FORMATS[words.word], words.rounding) for v in row] for row in left]
        left = [[v - w / scale for v, w in zip(*rows, strict=True)] for rows in zip(left, part, strict=True)]
        parts.append(np.array(part, dtype=float))
    return parts


def accumulated(left, right, share, words):
    """The sum of the products of a group of pairs: in one chain of instructions, or in blocks that are added outside.

    Each block is passed through once for each s + t, low words first; the sum so far is scaled in between.
    """
    k = left[0].shape[1]
    promoted = words.block is not None and (1, 1) in share
    block = words.block if promoted else k
    levels = sorted({sum(pair) for pair in share}, reverse=True)
    turns = [[pair for pair in share if sum(pair) == level] for level in levels] if promoted else [share]
    total = np.zeros((len(left[0]), len(right[0])))
    for first in range(0, k, block):
        part = np.zeros_like(total)
        for i, turn in enumerate(turns):
            if i > 0:
                part = np.ldexp(part, words.scale_bits * (levels[i] - levels[i - 1])).astype(np.float32).astype(float)
            for h in range(first, min(first + block, k), depth(words.word)):
                at = slice(h, min(h + depth(words.word), first + block, k))
                for s, t in turn:
                    a, b = left[s - 1][:, at], right[t - 1][:, at].T
                    part = mma_by_definition(a, b, part, words.word, words.accumulator, words.core)
        total = outer(total + part, words) if promoted else part
    return total


def outer(x, words):
    return x if words.promotion == "fp64" else x.astype(np.float32).astype(float)
