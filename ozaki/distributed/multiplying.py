"""The product by a plan: every process multiplies its parts, the parts are added, and each rounds some entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy.typing as npt

from ozaki.backends.parts import parts_at
from ozaki.bounds.description import Description
from ozaki.distributed.communicators.communicator import Communicator, Message
from ozaki.distributed.facts import Operands
from ozaki.distributed.layouts import Share, part_of
from ozaki.distributed.moving import Account, Held, Move, begin, empty_like, finish_work, panels
from ozaki.distributed.sharing import Sharing
from ozaki.process.placement import on_gpu
from ozaki.records.combination import Combination
from ozaki.records.progress import Progress
from ozaki.schemes import ComplexResidues, Scheme, scaling_of

NDArray = npt.NDArray[Any]


class Expression(NamedTuple):
    """Alpha A B + beta C, with C shared out."""

    combination: Combination
    c: Held | None


def multiply(
    operands: Operands,
    sharing: Sharing,
    scheme: Scheme,
    engine: str,
    inner_scaling: bool,
    deliver: Callable[[tuple[int, int], NDArray], None],
    expression: Expression | None,
    progress: Progress,
) -> None:
    """Compute the product by a scheme, and hand each block that this process rounds to `deliver`, with its number."""
    communicator, account, k = operands.communicator, operands.account, operands.shape[1]
    rank, left, right = communicator.rank, *operands.of(inner_scaling)
    parts = parts_at(operands.a.local)
    scaling = scaling_of(scheme, left.k)
    of_slices = scheme.slices if isinstance(scheme, ComplexResidues) else scheme
    finite = not left.nonfinite.any(), not right.nonfinite.any()
    used = parts.engine_for(of_slices, left.k, engine)
    count = sharing.panels() if k else 0
    progress.begin(max(sharing.blocks[0] * sharing.blocks[1] * count, 1), "panels")
    for number in sharing.numbers():
        rows, cols = (slice(each.start, each.stop) for each in sharing.block(rank, number))
        described = left.part(slice(None), rows), right.part(slice(None), cols)
        product = parts.PartialProduct.of(used, *described, scaling)
        flags = left.nonfinite[0, rows] > 0, right.nonfinite[0, cols] > 0
        touched = parts.Touched(flags, operands.reals == 2)
        loaded = panels(
            communicator, operands.a, operands.b, sharing, number, sharing.panel, count, account, "multiplying"
        )
        of_rows, of_cols = sharing.rounded(rank, number)
        out = empty_like(operands.a.local, (len(of_rows), len(of_cols)), operands.dtype)
        rounded = False
        for x, y, inner in loaded:
            began = perf_counter()
            left_rows = operands.rows(0, x, inner, inner_scaling)
            right_rows = operands.rows(1, y, inner, inner_scaling)
            if sharing.one_panel and expression is None:
                rounded = product.round_product(left_rows, right_rows, finite, out)
            if not rounded:
                product.add_product(left_rows, right_rows, finite)
            if touched.some:
                touched.add(x, y)
            account.computed += perf_counter() - began
            progress.step()
        mine = slice(0, rows.stop - rows.start)
        if sharing.layers > 1:
            mine, product = _added(communicator, sharing, product, touched, account)
        combination = of_block(operands, sharing, number, expression, (len(of_rows), len(of_cols)))
        began = perf_counter()
        if not rounded:
            product.round_into(out, combination)
        if touched.some:
            touched.write(out, mine.start, combination)
        account.computed += perf_counter() - began
        deliver(number, out)


def _added(
    communicator: Communicator,
    sharing: Sharing,
    product: Any,
    touched: Any,
    account: Account,
) -> tuple[slice, Any]:
    """Add what the layers of a tile have, some rows on each of its processes: which rows, and their un-rounded product.

    Integers are added here, where they lie, so that no sum of a communication library can wrap or round. `product` and
    `touched` are a `PartialProduct` and a `Touched` of either library.
    """
    step, me, team = "adding the layers", communicator.rank, sharing.team(communicator.rank)
    m = product.mu.shape[1]
    known = communicator.all_gather(product.form, step)
    strips = [slice(*_ends(part_of(m, layer, len(team)))) for layer in range(len(team))]
    mine = strips[team.index(me)]
    sums = [product.part(strip) for strip in strips]
    sends, receives = [], []
    for peer, strip in zip(team, sums, strict=True):
        if peer != me and strip is not None and strip.size:
            sends.append(Message(peer, strip))
    arriving = []
    for peer in team:
        if peer != me and known[peer] is not None:
            into = product.room(known[peer], mine.stop - mine.start)
            if into.size:
                receives.append(Message(peer, into))
                arriving.append((peer, into))
    others = [(peer, [empty_like(total, total.shape) for total in touched.totals]) for peer in team if peer != me]
    for peer, totals in others:
        sends += [Message(peer, total) for total in touched.totals if total.size]
        receives += [Message(peer, total) for total in totals if total.size]
    account.sent += sum(each.array.nbytes for each in sends)
    account.received += sum(each.array.nbytes for each in receives)
    if any(on_gpu(message.array) for message in (*sends, *receives)):
        finish_work()  # engines know no streams
    began = perf_counter()
    communicator.start(sends, receives, step).wait()
    account.waited += perf_counter() - began
    began = perf_counter()
    total = product.of_rows(mine)
    own = sums[team.index(me)]
    if own is not None:
        total.add(own, product.terms)
    for peer, into in arriving:
        total.add(into, known[peer][2])
    for _, totals in others:
        for mine_of, more in zip(touched.totals, totals, strict=True):
            mine_of += more
    account.computed += perf_counter() - began
    return mine, total


def _ends(of: range) -> tuple[int, int]:
    return of.start, of.stop


def of_block(
    operands: Operands,
    sharing: Sharing,
    number: tuple[int, int],
    expression: Expression | None,
    shape: tuple[int, int],
) -> Combination | None:
    """The expression of the entries of a block that this process rounds, with its part of the addend."""
    if expression is None:
        return None
    combination, c = expression
    if c is None:
        return combination
    communicator = operands.communicator
    wants = [Share(*sharing.rounded(rank, number)) for rank in range(communicator.size)]
    addend = empty_like(c.local, shape)
    begin(communicator, [Move(c, wants, addend)], operands.account, "moving the addend").wait()
    return replace(combination, c=addend[None])


def delivery(
    communicator: Communicator, sharing: Sharing, wants: list[Share], out: NDArray, account: Account
) -> Callable[[tuple[int, int], NDArray], None]:
    """What sends the entries of a block to the processes that want them, by rank, and writes this one's into `out`."""
    size = communicator.size

    def deliver(number: tuple[int, int], block: NDArray) -> None:
        shares = [Share(*sharing.rounded(rank, number)) for rank in range(size)]
        held = Held(block, shares, [0] * size)
        begin(communicator, [Move(held, wants, out)], account, "moving the result").wait()

    return deliver


def of_rounded(
    sharing: Sharing, rank: int, number: tuple[int, int], of: tuple[Description, Description]
) -> tuple[Description, Description]:
    """The descriptions of the rows and columns of the entries of a block that a process rounds."""
    left, right = (
        each.part(slice(None), slice(at.start, at.stop))
        for each, at in zip(of, sharing.rounded(rank, number), strict=True)
    )
    return left, right
