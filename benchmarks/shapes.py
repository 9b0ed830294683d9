"""Products that are not square: float64 with each engine, and what runs by default next to its alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.devices import Device
from benchmarks.measure import rows_of
from benchmarks.peers import Peers
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
"""The most inner indices that GEMMul8 takes."""


def shape_rows(device: Device, peers: Peers, seed: int, min_seconds: float) -> Iterator[Row]:
    """Measure each shape; GEMMul8 is measured only for shapes that it takes."""
    for shape in SHAPES:
        takes = shape.k <= MOST_OF_PEERS and shape.batch == 1 and not shape.turned
        compared = routines("shapes", device.xp, device.blas, peers.routines("shapes") if takes else ())
        yield from rows_of("shapes", "float64", device, shape, compared, seed, min_seconds)
        device.release()


STACKS = (
    Shape(16, 16, 16, batch=65536),
    Shape(32, 32, 32, batch=16384),
    Shape(64, 64, 64, batch=4096),
    Shape(128, 128, 128, batch=2048),
    Shape(256, 256, 256, batch=1024),
    Shape(512, 512, 512, batch=128),
)
"""Stacks of small matrices, of about the same bytes each."""

STACK_DTYPES = ("float64", "float32", "complex128")


def stack_rows(device: Device, seed: int, min_seconds: float) -> Iterator[Row]:
    """Measure stacks of small matrices in three formats; on a CPU of an eighth of the matrices."""
    fewer = 1 if device.xp.__name__ == "cupy" else 8
    for dtype in STACK_DTYPES:
        compared = routines(f"stacks {dtype}", device.xp, device.blas)
        for shape in STACKS:
            some = replace(shape, batch=shape.batch // fewer)
            yield from rows_of("stacks", dtype, device, some, compared, seed, min_seconds)
            device.release()


CHOICES = (
    Shape(64, 2**18, 64),
    Shape(256, 2**16, 256),
    Shape(512, 2**14, 512),
    Shape(768, 4096, 768),
    Shape(1024, 2**16, 1024),
    Shape(1536, 1024, 1536),
    Shape(4096, 1024, 4096),
    Shape(16384, 4096, 128),
    Shape(128, 4096, 16384),
    Shape(10000, 1000, 500),
    Shape(64, 100000, 64, turned=True),
    Shape(100000, 64, 64),
    Shape(512, 512, 512, batch=64),
    Shape(128, 128, 128, batch=1024),
    Shape(4096, 4096, 4096, data="graded"),
)
"""Shapes that differ in what is fastest: narrow, wide, of long and short k, batches, columns of different scales."""


def choice_rows(device: Device, seed: int, min_seconds: float) -> Iterator[Row]:
    """Measure what runs where no accuracy is named, next to all that might run, in both formats."""
    for dtype in ("float64", "float32"):
        for shape in CHOICES:
            compared = routines(f"choices {dtype}", device.xp, device.blas)
            yield from rows_of("choices", dtype, device, shape, compared, seed, min_seconds)
            device.release()
