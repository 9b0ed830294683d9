"""Random projections of a product on a GPU: C x beside A (B x), modulo two primes (docs/checking.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy.typing as npt

from ozaki.backends.cupy.program.arrays import Array, Place, View
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, Macros
from ozaki.backends.cupy.program.steps import Clear, Out
from ozaki.backends.cupy.steps.operands import Described, Slices
from ozaki.bounds.description import FIELDS
from ozaki.caches import cached
from ozaki.records.verification import Projected
from ozaki.schemes import Residues, Scaling, constants
from ozaki.schemes.projections import PRIMES

VERIFIED = "verified"
"""The name of the fact that the projections of a product find: `Projected`."""

_PRIMES = len(PRIMES)


@dataclass(frozen=True)
class Projection:
    """Where the kernels that round integers add C x.

    Attributes
    ----------
    x : uint32, shape (n, 2)
    sums : int64, shape (batch, m, 2), unsigned and not reduced
    """

    x: Array
    sums: Array

    def part(self, axis: int, first: int, last: int) -> Projection:
        """That of elements first, ..., last - 1 along an axis of the product."""
        if axis == 2:
            return replace(self, x=self.x.part(0, first, last))
        return replace(self, sums=self.sums.part(axis, first, last))

    @property
    def argument(self) -> tuple[int | None, ...]:
        """The struct Projection of kernels/conversion/projecting.cuh, without addresses."""
        return None, None, self.sums.steps[0]

    @property
    def written(self) -> tuple[Array, Out]:
        """The arrays whose addresses that argument has."""
        return self.x, Out(self.sums)


@dataclass(frozen=True)
class Check:
    """The projections of one product, while its steps are added.

    Attributes
    ----------
    projection : C x
    of_right, of_left : B x and A (B x), int64, shapes (matrices of B, k, 2) and (batch, m, 2), not reduced
    vectors : B x, reduced: uint32
    wrong : uint32: how many exponents, then how many sums of each matrix modulo each prime, are wrong
    knows_right : B x is complete: of one matrix for all, which an earlier part of the batch has projected
    """

    projection: Projection
    of_right: Array
    of_left: Array
    vectors: Array
    wrong: Array
    knows_right: bool = False

    @classmethod
    def begin(cls, b: Builder, seed: Place, shape: tuple[int, ...], k: int, matrices: int) -> Check:
        """Make the random vector of a product of shape (batch, m, n), of so many matrices on the right.

        `seed` is a random number in place of an address.
        """
        batch, m, n = shape
        x = b.array("x", (n, _PRIMES), "I", counted=False)
        b.launch(_random_kernel(n), seed, Out(x))
        sums = (("C x", batch, m), ("B x", matrices, k), ("A (B x)", batch, m))
        arrays = [b.array(name, (of, rows, _PRIMES), "q", counted=False) for name, of, rows in sums]
        vectors = b.array("B x, reduced", (matrices, k, _PRIMES), "I", counted=False)
        wrong = b.array("wrong", (1 + _PRIMES * batch,), "I", counted=False)
        for each in (*arrays, wrong):
            b.add(Clear(b.stream, each.at, each.nbytes))
        found, of_right, of_left = arrays
        return cls(Projection(x, found), of_right, of_left, vectors, wrong)

    def part(self, first: int, last: int) -> Check:
        """That of matrices first, ..., last - 1 of the batch; parts are taken in turn, from the first on."""
        of_left, of_right, vectors = self.of_left.part(0, first, last), self.of_right, self.vectors
        one_for_all = of_right.shape[0] == 1
        if not one_for_all:
            of_right, vectors = of_right.part(0, first, last), vectors.part(0, first, last)
        projection = self.projection.part(0, first, last)
        return Check(projection, of_right, of_left, vectors, self.wrong, one_for_all and first > 0)

    def right(self, b: Builder, scheme: Residues, slices: Slices, first: int) -> None:
        """Add the columns of B from `first` on, which are split, to B x."""
        if self.knows_right:
            return
        columns = slices.mu.shape[1]
        x = self.projection.x.part(0, first, first + columns)
        of = slices.described
        kernel = _project_kernel(of.x.view, scheme, True, of.inner is not None, of.x.shape[0], 0, slices.mu_step)
        b.launch(kernel, of.x, slices.mu, *_factors(slices), x, Out(self.of_right))

    def left(self, b: Builder, scheme: Residues, slices: Slices, first: int) -> None:
        """Find A (B x) for rows of A from `first` on, which are split, when B x is complete."""
        if first == 0:
            b.launch(_reduce_kernel(self.of_right.size // _PRIMES), self.of_right, Out(self.vectors))
        rows, of = slices.mu.shape[1], slices.described
        batch, k = self.of_left.shape[0], self.vectors.shape[1]
        step = k if self.vectors.shape[0] > 1 else 0
        out = self.of_left.part(1, first, first + rows)
        kernel = _project_kernel(
            of.x.view, scheme, False, of.inner is not None, batch, step, slices.mu_step, out.steps[0]
        )
        b.launch(kernel, of.x, slices.mu, *_factors(slices), self.vectors, Out(out))

    def exponents(self, b: Builder, scheme: Residues, slices: Slices, whole: Described, first: int) -> None:
        """Compare exponents, which products were rounded with, with those that the description of the rows gives.

        `whole` are all rows, of which those that are split begin with the row `first`.
        """
        assert not whole.only_largest
        kernel = _exponents_kernel(whole.scaling(scheme), whole.fields.shape, slices.mu.shape[1], first)
        b.launch(kernel, whole.fields, slices.mu, Out(self.wrong))

    def end(self, b: Builder) -> None:
        """Compare, and bring what was found to the host, as the fact `VERIFIED`."""
        batch, m, _ = self.of_left.shape
        kernel = _verify_kernel(batch, m)
        b.launch(kernel, self.projection.sums, self.of_left, Out(self.wrong))
        arrival = b.to_host("wrong, on the host", self.wrong.at, self.wrong.shape, "I")
        b.read(VERIFIED, (b.evidence(arrival, _projected),), _same)
        b.release(self.projection.x, self.projection.sums, self.of_right, self.of_left, self.vectors, self.wrong)


def _projected(wrong: npt.NDArray[Any]) -> Projected:
    """What the counts of wrong exponents and sums say."""
    projections = len(wrong) - 1
    return Projected(projections, projections if wrong[0] else int((wrong[1:] > 0).sum()))


def _same(found: Any) -> Any:
    return found


def _factors(slices: Slices) -> list[Array]:
    return [] if slices.described.inner is None else [slices.described.inner]


@cached(1024)
def _project_kernel(
    view: View, scheme: Residues, of_columns: bool, scaled: bool, batch: int, vector_step: int, mu_step: int,
    out_step: int | None = None,
) -> Kernel:  # fmt: skip
    """The image of rows, of A, or with `of_columns` of the columns of B, times a vector."""
    matrices, rows, k = view.shape
    steps = view.steps[0] if matrices > 1 else 0, *view.steps[1:]
    along = view.along_k
    p, q = rows, k
    if of_columns:
        steps, along, (p, q) = (steps[0], steps[2], steps[1]), 1 - view.along_k, (k, rows)
    macros: Macros = {
        "INPUT": view.dtype.ctype, "LIMBS": constants.image_limbs(scheme), "ALONG_Q": along,
        "OF_SUMMED": int(of_columns), "INNER": int(scaled),
    }  # fmt: skip
    grid = (batch * ceil(p / (32 if along else 256)) * ceil(q / (1024 if along else 64)),)
    factors = [None, k if matrices > 1 else 0] if scaled else []
    return Kernel.of(
        "conversion/project.cu", "project", macros, grid, (256,), None, *steps, p, q, None, mu_step, *factors,
        None, vector_step, None, _PRIMES * p if out_step is None else out_step,
    )  # fmt: skip


@cached(256)
def _random_kernel(n: int) -> Kernel:
    return Kernel.of("conversion/project.cu", "random_vector", {}, (ceil(n / 256),), (256,), None, None, n)


@cached(256)
def _reduce_kernel(count: int) -> Kernel:
    return Kernel.of("conversion/project.cu", "reduce_sums", {}, (ceil(count / 256),), (256,), None, None, count)


@cached(256)
def _exponents_kernel(scaling: Scaling, fields: tuple[int, ...], rows: int, first: int) -> Kernel:
    _, batch, of_matrix = fields
    return Kernel.of(
        "conversion/project.cu", "check_exponents", {}, (ceil(batch * rows / 256),), (256,), None, batch * of_matrix,
        of_matrix, first, batch * rows, rows, FIELDS.index(scaling.statistic), scaling.step, scaling.base,
        scaling.threshold, None, None,
    )  # fmt: skip


@cached(256)
def _verify_kernel(batch: int, m: int) -> Kernel:
    grid = (ceil(batch * m / 256),)
    return Kernel.of("conversion/project.cu", "verify_sums", {}, grid, (256,), None, None, batch, m, None)
