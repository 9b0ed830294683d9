"""Which matrix the equations of a solver have: a, its transpose, or its conjugate transpose."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Transposition = Literal[0, 1, 2]
"""A, its transpose, or its conjugate transpose, as SciPy numbers them."""

_NAMES: dict[Any, Transposition] = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


def transposition(trans: Any) -> Transposition:
    """The transposition that a caller names, as SciPy's functions do.

    Raises
    ------
    ValueError
    """
    if not isinstance(trans, int | np.integer | np.bool_ | str) or trans not in _NAMES:
        raise ValueError(f"trans: {trans!r}; expected 0, 1 or 2, or 'N', 'T' or 'C'")
    return _NAMES[trans]
