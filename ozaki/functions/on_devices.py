"""`matmul` with `devices=`: the arguments of a product on several GPUs, its plan, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ozaki.devices.blocks import Room
from ozaki.devices.product import DeviceReport, Functions, Task, compute
from ozaki.driver.watching import Watched, watching
from ozaki.functions.strips import check_apart, clear, even_strips, results, strips_of
from ozaki.process.placement import on_gpu
from ozaki.records.formats import DTYPES, format_named, is_complex, precision_of
from ozaki.records.options import Options
from ozaki.records.plan import Chosen, Plan
from ozaki.records.progress import Progress
from ozaki.records.report import power_of_two, priced, rounded_up


@dataclass(frozen=True)
class DevicesReport:
    """The account of a product on several devices.

    Attributes
    ----------
    plan : Plan
        The plan that ran.
    bound
        Proven error in the measure of `plan.target`, the rounding to the output included, in units of
        2**plan.target.exponent; inf where nothing is proven.
    devices : tuple of DeviceReport
        What each device did.
    """

    plan: Plan
    bound: float
    devices: tuple[DeviceReport, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """The report as plain data."""
        plan = self.plan
        assert plan.scheme is not None
        return {
            "bound": self.bound, "measure": plan.target.measure, "exponent": plan.target.exponent,
            "scheme": plan.scheme.name, "slices": plan.slices, "products": plan.products, "why": plan.why,
            "devices": [asdict(each) for each in self.devices],
        }  # fmt: skip

    def __str__(self) -> str:
        plan = self.plan
        assert plan.scheme is not None
        proven = "no error bound"
        if self.bound < inf:
            before = power_of_two(plan.unrounded_bound, plan.target.exponent)
            bound = rounded_up(self.bound, plan.target.exponent)
            proven = f"proven: {plan.target.measure} error <= {bound} ({before} before the rounding to the output)"
        if self.bound == 0:
            proven = "proven: exact"
        what = f"{priced(plan.slices, plan.scheme.name, plan.products)}, on {len(self.devices)} devices"
        return "\n".join([what, proven, *([plan.why] if plan.why else []), *map(str, self.devices)])


def multiply_on_devices(
    devices: Any,
    a: Any,
    b: Any,
    out: Any,
    options: Options,
    plan: Plan | None,
    return_report: bool,
    progress: Progress,
    functions: Functions,
    planned: Planned,
) -> Any:
    """The product on these devices (`matmul`).

    Parameters
    ----------
    functions : what products of blocks are made of
    planned : makes the plan of two arrays, or of two shapes, with options, or proves a given one for two arrays

    Raises
    ------
    ValueError, TypeError
        Naming the argument, before anything is computed.
    """
    numbers = device_numbers(devices)
    from ozaki.backends.cupy import peers

    of_a, of_b = strips_of("a", a), strips_of("b", b)
    options = options._replace(dtype=format_named(options.dtype))
    shape = _checked(of_a, of_b, options, plan)
    dtype = _result_format(of_a[0], of_b[0], options)
    if isinstance(a, list | tuple):
        if len(of_a) != len(numbers):
            raise ValueError(f"a: {len(of_a)} strips; expected {len(numbers)}, one for each device")
    else:
        of_a = even_strips(of_a[0], len(numbers))
    shares = [*zip(numbers, of_a, strict=True)]
    shares = [(number, strip) for number, strip in shares if strip.shape[0]] or shares[:1]
    numbers, of_a = [number for number, _ in shares], [strip for _, strip in shares]
    c, to = results(a, of_a, out, shape, dtype)
    check_apart(to, of_a, of_b)
    events = [[peers.given_events(strip) for strip in strips] for strips in (of_a, of_b, to)]
    found = plan
    if plan is not None:
        _check_plan(plan, shape, dtype)
    if found is None or (not (found.a_priori or 0 in shape) and (found.strict or return_report)):
        found = _plan_of(of_a, of_b, shape, dtype, options, numbers[0], planned, plan)
    _check_plan(found, shape, dtype)
    watched = Watched("matmul", _Shaped(shape[:2]), _Shaped(shape[1:])) if watching() else None
    if watched is not None:
        watched.chosen(Chosen(found, found.bound))
    reports: list[DeviceReport] = []
    if shape[1] == 0:
        for strip in to:
            clear(strip)
    elif 0 not in (shape[0], shape[2]):
        task = Task(of_a, of_b, to, found, numbers, (events[0], events[1], events[2]))
        reports = compute(task, functions, lambda: _room(found, dtype, peers.free_bytes()), progress)
    progress.end()
    if watched is not None:
        watched.ran(Chosen(found, found.bound))
    return (c, DevicesReport(found, found.bound, tuple(reports))) if return_report else c


Planned = Callable[[Any, Any, Options, Plan | None], Plan]
"""Makes a plan of two arrays or shapes, with options, or proves the one that is given."""


class _Shaped(NamedTuple):
    """An operand as the account of a product names it."""

    shape: tuple[int, int]


def device_numbers(devices: Any) -> list[int]:
    """The numbers of the devices that an argument names.

    Raises
    ------
    ValueError, TypeError
    """
    every = isinstance(devices, str) and devices == "all"
    given = list(devices) if isinstance(devices, list | tuple) else [devices]
    found = [] if every else [_number(each) for each in given]
    if not (found or every):
        raise ValueError("devices: none; expected 'all', a number, 'cuda:1', or a list of these")
    try:
        import cupy as cp
    except ImportError:
        raise ValueError("devices: CuPy is not installed; leave it out to multiply on the host") from None
    try:
        there = int(cp.cuda.runtime.getDeviceCount())
    except cp.cuda.runtime.CUDARuntimeError:
        there = 0
    if not there:
        raise ValueError("devices: CuPy finds no GPU; leave it out to multiply on the host")
    if every:
        return list(range(there))
    for number in found:
        if not 0 <= number < there:
            raise ValueError(f"devices: {number}; expected numbers below {there}, of which there are devices")
    if len(set(found)) < len(found):
        raise ValueError(f"devices: {found}; expected each device once")
    return found


def _number(device: Any) -> int:
    """The number of one device that a caller names.

    Raises
    ------
    TypeError
    """
    text = str(device) if isinstance(device, str) else None
    if text is not None and text.startswith("cuda:") and text[5:].isdigit():
        return int(text[5:])
    if isinstance(device, bool) or not isinstance(device, int | np.integer):
        kind = repr(device) if text is not None else type(device).__name__
        raise TypeError(f"devices: {kind}; expected 'all', a number, 'cuda:1', or a list of these")
    return int(device)


def _checked(of_a: list[Any], of_b: list[Any], options: Options, plan: Plan | None) -> tuple[int, int, int]:
    """The shape (m, k, n) of the product."""
    m, n, k = sum(strip.shape[0] for strip in of_a), sum(strip.shape[1] for strip in of_b), of_a[0].shape[1]
    if any(strip.shape[1] != k for strip in of_a):
        raise ValueError(f"a: strips of {[strip.shape[1] for strip in of_a]} columns; expected as many, strips of rows")
    for strip in of_b:
        if strip.shape[0] != k:
            raise ValueError(
                f"b: shape {strip.shape} does not fit a of {k} columns; expected ({k}, n), strips of columns"
            )
    if options.verify:
        raise NotImplementedError("verify: True is not for devices=; verify a product of one device")
    if options.inner_scaling:
        raise NotImplementedError("inner_scaling: True is not for devices=, whose blocks would be scaled anew")
    if (plan or options).workspace_limit is not None:
        raise NotImplementedError("workspace_limit: not for devices=, whose blocks follow what is free; leave it out")
    if options.dtype is not None and options.dtype not in DTYPES:
        raise ValueError(f"dtype: {options.dtype!r}; expected one of {', '.join(DTYPES)} with devices=")
    return m, k, n


def _result_format(a: Any, b: Any, options: Options) -> str:
    """The format of the product of two matrices, or two strips of them.

    Raises
    ------
    TypeError, NotImplementedError
        If the operands, or the dtype that is asked for, do not fit.
    """
    found = str(np.result_type(a.dtype, b.dtype))
    if is_complex(str(a.dtype)) != is_complex(str(b.dtype)):
        raise TypeError("b: one operand is complex and the other is real; make both complex, as x + 0j")
    if options.dtype is not None and is_complex(options.dtype) != is_complex(found):
        raise TypeError(f"dtype: {options.dtype!r} of {found} operands")
    if options.dtype is not None and precision_of(options.dtype) < precision_of(found):
        raise NotImplementedError(f"dtype: {options.dtype!r} of {found} operands is not for devices=; leave it out")
    return options.dtype or found


def _plan_of(
    of_a: list[Any],
    of_b: list[Any],
    shape: tuple[int, int, int],
    dtype: str,
    options: Options,
    device: int,
    planned: Planned,
    given: Plan | None,
) -> Plan:
    """The plan of the whole product: from shapes, where a number of slices is named alone, else from all elements.

    Or the given one, proven for these elements.

    These are brought to one device for that, or, where it does not hold them, planned for by NumPy: a plan is the same
    on all backends. Rows are not scaled along k: a block would be scaled by what it has itself.
    """
    m, k, n = shape
    asked = options._replace(reproducible=True, inner_scaling=False, workspace_limit=None)
    if given is None and options.slices is not None and options.accuracy is None:
        return planned((m, k), (k, n), asked._replace(dtype=dtype), None)
    import cupy as cp

    from ozaki.backends.cupy import peers

    with cp.cuda.Device(device):
        try:
            return planned(_gathered(of_a, 0, device), _gathered(of_b, 1, device), asked, given)
        except peers.OutOfMemoryError:
            peers.release_unused()
            if any(on_gpu(strip) for strip in (*of_a, *of_b)):
                raise
    left, right = (
        np.concatenate(strips, axis) if len(strips) > 1 else strips[0] for axis, strips in enumerate((of_a, of_b))
    )
    return planned(left, right, asked, given)


def _gathered(strips: list[Any], axis: int, device: int) -> Any:
    """The whole operand on a device, the current one, whose current stream may read it."""
    import cupy as cp

    from ozaki.backends.cupy import peers

    mover = peers.Mover(device)
    try:
        arrived = []
        for strip in strips:
            everything = slice(0, strip.shape[0]), slice(0, strip.shape[1])
            arrived.append(mover.bring(strip, everything, peers.given_events(strip)))
    finally:
        mover.finish()
    arrays = [each.ready() for each in arrived]
    if len(arrays) == 1:
        return arrays[0]
    whole = cp.concatenate(arrays, axis=axis)
    cp.cuda.get_current_stream().synchronize()  # the next mover's streams may take the memory of the strips
    return whole


def _check_plan(plan: Plan, shape: tuple[int, int, int], dtype: str) -> None:
    """Refuse a plan of another product, or of one that blocks do not have.

    Raises
    ------
    ValueError
    """
    if plan.shape != shape or plan.batch or plan.dtype != dtype:
        raise ValueError(f"plan: for {(*plan.batch, *plan.shape)} and {plan.dtype}; expected {shape} and {dtype}")
    if plan.scheme is None or not plan.scheme.exact:
        raise ValueError("plan: expected one of residues or digits; plan with reproducible=True")
    if plan.inner_scaling:
        raise ValueError("plan: has inner scaling, which blocks would have anew; plan with inner_scaling=False")


def _room(plan: Plan, dtype: str, free: int) -> Room:
    """What a product takes, of nine tenths of the memory that is free: cuBLAS gathers slice products in the rest."""
    assert plan.scheme is not None
    parts = 2 if is_complex(dtype) else 1
    return Room(free * 9 // 10, 8 * parts, plan.products * parts + parts)
