"""Products of many layouts by the processes that run this: the SHA-256 of each, by its name."""

import hashlib

import launching
import numpy as np

import ozaki
from ozaki import distributed
from ozaki.distributed import BlockCyclic, BlockNonCyclic, Box, ProcessGrid, Replicated, Slab

METHODS = {"14 residues": {"scheme": "residues", "slices": 14}, "fp64": {"accuracy": "fp64"}}

SHAPE = 61, 1203, 47


def operands():
    """A and B, with all that exponents and sums may get wrong: grades, zeros, NaN, Inf, a row near overflow."""
    rng = np.random.default_rng(56)
    m, k, n = SHAPE
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a[3] *= 1e300
    a[5, ::3] = 0
    a[7], b[:, 2] = 0, 0
    b[:, 11] *= 2.0 ** -np.arange(k)[::-1] if k < 1000 else 2.0**-500
    a[9, 600], b[17, 30] = np.nan, np.inf
    return a, b


def digest(c):
    return hashlib.sha256(np.ascontiguousarray(c).tobytes()).hexdigest()


def expected():
    """What one call of NumPy gives, by the name of the method."""
    a, b = operands()
    return {name: digest(ozaki.matmul(a, b, reproducible=True, **method)) for name, method in METHODS.items()}


def layouts(size):
    """Distributions of A, B and C by name; whatever they are, the bits are the same."""
    grid = ProcessGrid((2, size // 2)) if size % 2 == 0 else ProcessGrid((1, size))
    turned = ProcessGrid((size, 1), "column-major")
    return {
        "rows": (Slab.X, Slab.X, Slab.X),
        "rows and columns": (Slab.X, Slab.Y, BlockNonCyclic(grid)),
        "parts of k": (Slab.Y, Slab.X, Slab.Y),
        "blocks": (BlockCyclic(grid, (8, 32)), BlockCyclic(turned, (100, 7)), BlockCyclic(grid, (3, 5))),
        "copies": (Replicated(), BlockCyclic(turned, (64, 64), (size - 1, 0)), Replicated()),
    }


def work(communicator):
    (a, b), size, found = operands(), communicator.size, {}
    for name, (of_a, of_b, of_c) in layouts(size).items():
        x, y = (distributed.share_of(each, of, communicator) for each, of in ((a, of_a), (b, of_b)))
        for method, options in METHODS.items():
            c = distributed.matmul(x, y, of_c, **options)
            found[f"{name}, {method}"] = digest(c.gather())
    x, y = (distributed.share_of(each, Slab.X, communicator) for each in (a, b))
    for layers in (1, size):
        for grid in (ProcessGrid((size // layers, 1)), ProcessGrid((1, size // layers))):
            for method, options in METHODS.items():
                c = distributed.matmul(x, y, grid=grid, layers=layers, **options)
                found[f"{grid.shape}, {layers} layers, {method}"] = digest(c.gather())
    (m, k, _), rank = SHAPE, communicator.rank
    first = [*[0, 10, 10, 40, 50][:size], m]  # a process without rows
    box = Box((first[rank], 0), (first[rank + 1], k))
    c = distributed.matmul(distributed.array(a[first[rank] : first[rank + 1]], box, communicator), y, **METHODS["fp64"])
    found["boxes, fp64"] = digest(c.gather())
    return found


if __name__ == "__main__":
    launching.main(work)
