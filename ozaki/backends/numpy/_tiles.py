"""How many elements are processed at a time."""

TILE = 2**16
"""Elements that are processed at a time: a few float64 arrays of this size stay in the second-level cache."""

COMBINED_SHARE = 8
"""Part of a tile that is combined with an addend at a time, since that takes more scratch memory."""

FEW = 2**10
"""Elements of arrays that are so small that calls of NumPy take the time, not their arithmetic.

Whatever is made of so few elements at a time counts as an object (`OBJECTS`) in accounts of memory.
"""

OBJECTS = 2**16
"""Bytes of workspace added for Python's and NumPy's objects and for arrays of a few rows or `FEW` elements."""
