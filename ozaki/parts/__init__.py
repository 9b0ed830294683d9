"""A product in parts: what each part of the inner dimension has, merged exactly, and rounded once.

Whoever has a part of A's columns and B's rows, a process, a device or a file, finds what it has to say of exponents,
multiplies its part, and hands on integers. Whatever the parts are, and in whichever order they merge, the bits are
those of `ozaki.matmul` on the whole matrices (docs/how_to/parts.md).
"""

from ozaki.parts.rows import Rows, describe, extremes, sums
from ozaki.parts.unrounded import Unrounded, multiply, plan

__all__ = ["Rows", "Unrounded", "describe", "extremes", "multiply", "plan", "sums"]
