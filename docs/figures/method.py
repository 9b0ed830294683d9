"""Draw the figures of docs/explanation/method.md: `python docs/figures/method.py`, which needs Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, prod
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

HERE = Path(__file__).parent

ROW = (13.4063217, -0.7853982, 3.0190483, 0.0379646)
"""The elements of the first figure."""
SLICE_BITS, SLICES = 8, 3
"""Bits of a slice, and slices of the image."""

LEFT, RIGHT, MODULI = (1234, -567, 89), (321, 654, -987), (256, 255, 253)
"""The integers of the second figure: the example of the page."""

COLORS = "#9ecae1", "#a1d99b", "#fdd0a2"
"""One colour for each slice."""


def main() -> None:
    """Draw both figures."""
    slices_of_a_row().savefig(HERE / "slices.png", dpi=130)
    residues_of_a_product().savefig(HERE / "residues.png", dpi=130)


def slices_of_a_row() -> Any:
    """The bits of the elements of a row on a common scale, cut into slices."""
    figure, axes = plt.subplots(figsize=(9, 2.9), layout="constrained")
    top = max(frexp(x)[1] for x in ROW)
    for line, x in enumerate(ROW):
        y = len(ROW) - 1 - line
        kept = SLICES * SLICE_BITS
        leading = top - frexp(x)[1]
        image = round(abs(x) * 2 ** (kept - top))
        assert image.bit_length() == kept - leading  # rounding has carried into no new place
        axes.text(-0.6, y + 0.5, str(x).replace("-", "\N{MINUS SIGN}"), ha="right", va="center", family="monospace")
        for place in range(kept):
            color = "white" if place < leading else COLORS[place // SLICE_BITS]
            axes.add_patch(Rectangle((place, y + 0.08), 1, 0.84, facecolor=color, edgecolor="gray", linewidth=0.4))
            if place >= leading:
                bit = image >> (kept - 1 - place) & 1
                axes.text(place + 0.5, y + 0.48, str(bit), ha="center", va="center", fontsize=7)
        off = abs(x) * 2 ** (kept - top) - image
        what = "exact" if off == 0 else "rounded up" if off < 0 else "rounded down"
        axes.text(kept + 0.6, y + 0.5, what, ha="left", va="center", fontsize=9)
    for each in range(SLICES):
        axes.text((each + 0.5) * SLICE_BITS, len(ROW) + 0.35, f"slice {each + 1}: 8 bits", ha="center", va="center")
        axes.axvline((each + 1) * SLICE_BITS, ymin=0.04, ymax=0.9, color="black", linewidth=1.4)
    axes.set(xlim=(-4.5, SLICES * SLICE_BITS + 4), ylim=(-0.3, len(ROW) + 0.8))
    axes.axis("off")
    return figure


def residues_of_a_product() -> Any:
    """An inner product of integers by residues, and the integer that the Chinese remainder theorem finds."""
    figure, axes = plt.subplots(figsize=(10.5, 4.2), layout="constrained")
    _box(axes, 0.0, 1.5, 1.8, ["row of A", _list(LEFT), "", "column of B", _list(RIGHT)], "white")
    remainders = []
    for line, (modulus, color) in enumerate(zip(MODULI, COLORS, strict=True)):
        y = 3.0 - 1.5 * line
        left, right = [x % modulus for x in LEFT], [x % modulus for x in RIGHT]
        remainders.append(sum(x * z for x, z in zip(left, right, strict=True)) % modulus)
        rows = [f"residues modulo {modulus}", f"row: {_list(left)}", f"column: {_list(right)}"]
        _box(axes, 2.3, y, 2.0, rows, color)
        terms = [f"{x} \N{MULTIPLICATION SIGN} {z}" for x, z in zip(left, right, strict=True)]
        total = sum(x * z for x, z in zip(left, right, strict=True))
        found = f"= {total}; modulo {modulus}: {remainders[-1]}"
        _box(axes, 4.8, y, 2.5, ["slice product", " + ".join(terms), found], color)
        _arrow(axes, (1.8, 2.0), (2.3, y + 0.5))
        _arrow(axes, (4.3, y + 0.5), (4.8, y + 0.5))
        _arrow(axes, (7.3, y + 0.5), (8.7, 2.0))
    axes.text(8.05, 3.4, "Chinese\nremainder theorem", ha="left", va="center", fontsize=8, color="dimgray")
    whole = recombined(remainders, MODULI)
    assert whole == sum(x * y for x, y in zip(LEFT, RIGHT, strict=True))
    _box(axes, 8.7, 1.5, 1.6, ["recombined:", _list([whole]), "", "the exact sum,", "to be rounded once"], "white")
    axes.set(xlim=(-0.1, 10.4), ylim=(-0.2, 4.2))
    axes.axis("off")
    return figure


def recombined(remainders: Sequence[int], moduli: Sequence[int]) -> int:
    """The integer nearest to zero with these remainders."""
    product = prod(moduli)
    weights = [product // m * pow(product // m, -1, m) for m in moduli]
    found = sum(r * w for r, w in zip(remainders, weights, strict=True)) % product
    return found - product if found > product // 2 else found


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)).replace("-", "\N{MINUS SIGN}")


def _box(axes: Any, x: float, y: float, width: float, lines: Sequence[str], color: str) -> None:
    axes.add_patch(Rectangle((x, y), width, 1.0, facecolor=color, edgecolor="gray"))
    axes.text(x + width / 2, y + 0.5, "\n".join(lines), ha="center", va="center", fontsize=8)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "gray"})


if __name__ == "__main__":
    main()
