"""Products that are not square, float64: ours with either engine beside the native product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.devices import Device
from benchmarks.measure import rows_of
from benchmarks.results import Row, Shape
from benchmarks.routines import routines

SHAPES = (
    Shape(16384, 1024, 16384),
    Shape(1024, 2**20, 1024),
    Shape(1024, 2**17, 1024),
    Shape(64, 100000, 64, turned=True),
    Shape(256, 256, 256, batch=1024),
    Shape(512, 512, 512),
    Shape(1024, 1024, 1024),
)

MOST_OF_PEERS = 2**17
"""Inner indices that GEMMul8 takes."""


def shape_rows(device: Device, peer: Any, seed: int, least: float) -> Iterator[Row]:
    """Measure each shape; GEMMul8 multiplies those that it takes."""
    for shape in SHAPES:
        takes = shape.k <= MOST_OF_PEERS and shape.batch == 1 and not shape.turned
        compared = routines("shapes", device.xp, device.blas, peer if takes else None)
        yield from rows_of("shapes", "float64", device, shape, compared, seed, least)
        device.release()
