"""A product on several devices: each computes rows of C, by blocks of columns that arrive meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ozaki.devices.blocks import Blocks, Room, Where, blocks_of, halved
from ozaki.records.plan import Plan
from ozaki.records.prepared import Prepared
from ozaki.records.progress import Progress
from ozaki.records.report import bytes_in_words


@dataclass(frozen=True)
class DeviceReport:
    """What one device did in a product.

    Attributes
    ----------
    device : its number
    rows : of C that it computed: (first, end)
    blocks : in how many rows and columns of blocks
    seconds : from its first copy to its last
    moved : bytes that came from elsewhere or went there
    smaller : how often blocks were halved because the device ran out of memory
    """

    device: int
    rows: tuple[int, int]
    blocks: tuple[int, int]
    seconds: float
    moved: int
    smaller: int = 0

    def __str__(self) -> str:
        fewer = f", halved {self.smaller} times for want of memory" if self.smaller else ""
        return (
            f"device {self.device}: rows {self.rows[0]} to {self.rows[1]} in {self.blocks[0]} x {self.blocks[1]} "
            f"blocks{fewer}; {self.seconds:.3g} s, moved {bytes_in_words(self.moved)}"
        )


Events = Sequence[Any]
"""Events of a device, as `backends.cupy.peers` has them."""


class Functions(NamedTuple):
    """What a product on a device is made of: the functions of one device."""

    multiply: Callable[[Any, Any, Plan], Any]
    prepare: Callable[[Any, Any, Plan], Prepared]


class Task(NamedTuple):
    """A product that is shared out over devices.

    Attributes
    ----------
    a : strips of rows of A, one a device that computes
    b : strips of columns of B
    out : strips of rows of C, of the same rows as those of A
    plan : of the whole product
    devices : numbers, one for each strip of A
    events : of all strips of A, B and C: those after which each may be read, or written
    """

    a: Sequence[Any]
    b: Sequence[Any]
    out: Sequence[Any]
    plan: Plan
    devices: Sequence[int]
    events: tuple[Sequence[Events], Sequence[Events], Sequence[Events]]


class Copies:
    """Blocks of columns of B that lie on several devices: who wants one takes it from where it was taken least.

    So no device sends all of B to each other one. Copies are read by other devices' threads: they live until all have
    ended.

    Parameters
    ----------
    strips : of columns of B
    events : of each, after which it may be read
    """

    def __init__(self, strips: Sequence[Any], events: Sequence[Events]) -> None:
        self._lock = threading.Lock()
        self._strips = list(zip(strips, _places(strips), events, strict=True))
        self._found: dict[range, list[_Copy]] = {}

    def take(self, cols: range, device: int) -> tuple[Any, tuple[slice, slice], Events]:
        """An array that has these columns, where in it they are, and the events after which it may be read."""
        with self._lock:
            copies = self._found.setdefault(cols, [self._original(cols)])
            copy = min(copies, key=lambda each: (each.device != device, each.taken))
            copy.taken += 1
            return copy.array, copy.at, copy.events

    def add(self, cols: range, array: Any, events: Events, device: int) -> None:
        """Let others take these columns from an array on a device, too, which is not changed until all have ended."""
        with self._lock:
            at = slice(0, array.shape[0]), slice(0, array.shape[1])
            self._found[cols].append(_Copy(array, at, events, device))

    def forget(self, device: int) -> None:
        """Offer no copies on a device any more; what others are reading lives as long as they do."""
        with self._lock:
            for cols, copies in self._found.items():
                self._found[cols] = [copies[0], *(each for each in copies[1:] if each.device != device)]

    def home(self, cols: range) -> int | None:
        """The device on which these columns lay first; None of the host's memory."""
        return self._original(cols).device

    def _original(self, cols: range) -> _Copy:
        for strip, place, events in self._strips:
            if cols.start in place:
                at = slice(cols.start - place.start, cols.stop - place.start)
                return _Copy(strip, (slice(0, strip.shape[0]), at), events, _device_of(strip))
        raise AssertionError(cols)


@dataclass
class _Copy:
    """Where columns lie, and how often they were taken from there."""

    array: Any
    at: tuple[slice, slice]
    events: Events
    device: int | None
    taken: int = 0


def compute(task: Task, functions: Functions, room: Callable[[], Room], progress: Progress) -> list[DeviceReport]:
    """Compute all strips, each by a thread for its device.

    Raises
    ------
    MemoryError
        Naming the device that does not hold the smallest blocks.
    Exception
        That of the first device, in their order, that has failed; the others stop after the block that they compute.
    """
    import cupy as cp

    rooms = []
    for device in task.devices:
        with cp.cuda.Device(device):
            rooms.append(room())
    first = [_cut(task, number, left) for number, left in enumerate(rooms)]
    progress.begin(sum(blocks.count for blocks in first), "blocks")
    copies = Copies(task.b, task.events[1])
    errors: list[tuple[int, BaseException]] = []
    found: list[DeviceReport | None] = [None] * len(task.devices)
    stop, lock = threading.Event(), threading.Lock()

    def told(count: int) -> None:
        with lock:
            progress.step(count)

    def run(number: int) -> None:
        try:
            found[number] = _strip(task, number, first[number], rooms[number], copies, functions, told, stop)
        except BaseException as error:
            errors.append((number, error))
            stop.set()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, len(task.devices))]
    try:
        for thread in threads:
            thread.start()
        run(0)
        for thread in threads:
            thread.join()
    except BaseException:  # the caller is interrupted: nothing may write to `out` once he knows
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    if errors:
        raise min(errors, key=lambda each: each[0])[1]
    return [each for each in found if each is not None]


def _strip(
    task: Task,
    number: int,
    blocks: Blocks,
    room: Room,
    copies: Copies,
    functions: Functions,
    told: Callable[[int], None],
    stop: threading.Event,
) -> DeviceReport:
    """Compute the rows of one device; with smaller blocks, from the start, if its memory does not hold these."""
    import cupy as cp

    from ozaki.backends.cupy import peers

    began, smaller = perf_counter(), 0
    device, rows = task.devices[number], task.a[number].shape[0]
    first = sum(strip.shape[0] for strip in task.a[:number])
    with cp.cuda.Device(device), np.errstate(all="ignore"):
        while True:
            mover = peers.Mover(device)
            try:
                try:
                    _blocks(task, number, blocks, mover, copies, functions, told, stop)
                finally:
                    mover.finish()
                break
            except peers.OutOfMemoryError:
                copies.forget(device)
                peers.release_unused()
                room, smaller = halved(room), smaller + 1
                if smaller > _MOST_HALVINGS:
                    raise
                blocks = _cut(task, number, room)
    return DeviceReport(
        device, (first, first + rows), (len(blocks.rows), len(blocks.cols)), perf_counter() - began, mover.moved,
        smaller,
    )  # fmt: skip


_MOST_HALVINGS = 6


def _cut(task: Task, number: int, room: Room) -> Blocks:
    """The blocks of a device.

    Raises
    ------
    MemoryError
        Naming the device, if it does not hold the smallest ones.
    """
    try:
        rows = range(task.a[number].shape[0])
        return blocks_of(rows, _places(task.b), task.plan.shape[1], room, _where(task, number))
    except MemoryError as error:
        raise MemoryError(f"device {task.devices[number]}: {error}") from None


def _where(task: Task, number: int) -> Where:
    """Where the rows of A and C lie that a device computes."""
    return "host" if None in (_device_of(task.a[number]), _device_of(task.out[number])) else "device"


def _device_of(x: Any) -> int | None:
    """The device in whose memory an array lies; None of the host's."""
    device: int | None = getattr(getattr(x, "data", None), "device_id", None)
    return device


def _places(strips: Sequence[Any]) -> list[range]:
    """The columns of strips of B, in one row."""
    found, first = [], 0
    for strip in strips:
        found.append(range(first, first + strip.shape[1]))
        first += strip.shape[1]
    return found


def _blocks(
    task: Task,
    number: int,
    blocks: Blocks,
    mover: Any,
    copies: Copies,
    functions: Functions,
    told: Callable[[int], None],
    stop: threading.Event,
) -> None:
    """Compute the blocks of one device, one after another; the next columns, or rows, arrive meanwhile.

    Columns that lie there already come first, then those by which devices differ, so that each brings other ones and
    takes the rest from the others. Blocks of the result leave one by one.
    """
    from ozaki.backends.cupy.program.streams import using

    a, out, given = task.a[number], task.out[number], task.events[0][number]
    first = len(blocks.cols) * number // len(task.devices)
    turned = (*blocks.cols[first:], *blocks.cols[:first])
    order = sorted(turned, key=lambda cols: copies.home(cols) != mover.device)
    k = task.plan.shape[1]
    kept: dict[range, Prepared] = {}

    def bring_rows(rows: range) -> Any:
        return mover.bring(a, (slice(rows.start, rows.stop), slice(0, k)), given)

    def bring_cols(cols: range) -> Any:
        """The columns, on their way; None if their slices are here."""
        if cols in kept:
            return None
        arriving = mover.bring(*copies.take(cols, mover.device))
        if blocks.keeps and copies.home(cols) != mover.device:
            copies.add(cols, arriving.array, arriving.events, mover.device)
        return arriving

    mover.write_after(task.events[2][number])
    with using(mover.products.ptr):
        rows_ahead, ahead = bring_rows(blocks.rows[0]), bring_cols(order[0])
        for rows, next_rows in zip_longest(blocks.rows, blocks.rows[1:]):
            arrived, rows_ahead = rows_ahead, None
            plan = of_tile(task.plan, len(rows), len(order[0]))
            left = functions.prepare(arrived.ready(), "left", plan)
            for cols, following in zip_longest(order, order[1:]):
                if stop.is_set():
                    return
                plan = of_tile(task.plan, len(rows), len(cols))
                right, used = kept.get(cols), ahead
                if right is None:
                    right = functions.prepare(used.ready(), "right", plan)
                    if blocks.keeps:
                        kept[cols] = right
                ahead = None if following is None else bring_cols(following)
                if next_rows is not None and rows_ahead is None and ahead is None:
                    rows_ahead = bring_rows(next_rows)
                    if following is None:
                        ahead = bring_cols(order[0])
                of_left, of_right = (_for_plan(each, plan, functions) for each in (left, right))
                block = functions.multiply(of_left, of_right, plan)
                mover.send(block, out, (slice(rows.start, rows.stop), slice(cols.start, cols.stop)))
                mover.free_after_products()
                arrived = used = None  # not before: later copies may take this memory
                told(1)
            del left, of_left, of_right, right, block  # before the next rows are split


def of_tile(plan: Plan, rows: int, cols: int) -> Plan:
    """The plan of a product, for some of its rows and columns: proven already, or promised for any operands."""
    return replace(plan, shape=(rows, plan.shape[1], cols), a_priori=True, strict=None, workspace_limit=None)


def _for_plan(operand: Prepared, plan: Plan, functions: Functions) -> Prepared:
    """A prepared operand for a tile that is wider or narrower than the one that it was prepared for."""
    from ozaki.backends.cupy.prepared import same_engine

    if operand.plan == plan:
        return operand
    if same_engine(operand.plan, plan):
        return replace(operand, plan=plan)
    rows = operand.slices.x[0]  # another engine wants slices to lie in another way
    return functions.prepare(rows if operand.side == "left" else rows.T, operand.side, plan)
