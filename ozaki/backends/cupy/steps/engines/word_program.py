"""The products of words that a kernel is to add: the struct Program of kernels/words/word_program.cuh."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from ozaki.backends.cupy.steps.words import width
from ozaki.caches import cached
from ozaki.schemes import Words
from ozaki.schemes.words import groups

_MOST_PAIRS = 64


@cached(256)
def program(words: Words) -> Any:
    """The struct as a kernel argument."""
    numbers, lists = _fields(words)
    memory = np.array(numbers, np.int32).tobytes() + b"".join(bytes(x).ljust(_MOST_PAIRS, b"\0") for x in lists)
    return np.frombuffer(memory, f"V{len(memory)}")


def initializer(words: Words) -> str:
    """The struct as an initializer in C++, for a macro."""
    numbers, lists = _fields(words)
    return "{" + ",".join([*map(str, numbers), *("{" + ",".join(map(str, x)) + "}" for x in lists)]) + "}"


def _fields(words: Words) -> tuple[list[int], list[list[int]]]:
    """The members of the struct: two numbers, and lists.

    The numbers are those of groups, and of units of k in a block. The lists are, for each pair, its word of A and its
    word of B; where turns and where groups end; `down` of each turn, the bits by which the accumulator is scaled down
    before it; and the weight of each group.
    """
    shares = groups(words)
    turns = [turn for group in shares for turn in group.turns]
    down = [
        words.scale_bits * (sum(before[0]) - sum(turn[0]))
        for group in shares
        for before, turn in zip((group.turns[0], *group.turns), group.turns, strict=False)
    ]
    ends = list(accumulate(map(len, turns))), list(accumulate(len(group.turns) for group in shares))
    pairs = [pair for turn in turns for pair in turn]
    block = (words.block or 0) * width(words) // 32
    words_of_pairs = [s - 1 for s, _ in pairs], [t - 1 for _, t in pairs]
    return [len(shares), block], [*words_of_pairs, *ends, down, [group.weight for group in shares]]
