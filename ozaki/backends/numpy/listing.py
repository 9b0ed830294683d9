"""The steps of a plan on NumPy, as text for people."""

from __future__ import annotations

from math import prod

from ozaki.backends.numpy._execute import panel_of
from ozaki.backends.numpy.engines import engine_of
from ozaki.records.plan import Plan
from ozaki.schemes import Scheme, Words


def steps_of(plan: Plan) -> str:
    """The steps of a plan, a line each."""
    m, k, n = plan.shape
    batch = prod(plan.batch)
    if plan.scheme is None:
        return "  1  numpy.matmul         a, b -> c"
    lines = [
        "describe             a -> exponents, sums and norms of its rows",
        "describe             b -> those of its columns",
    ]
    if isinstance(plan.scheme, Words):
        lines += [f"cut and multiply     a, b -> c   in tiles, on modelled tensor cores of {plan.scheme.core.name}"]
    elif 0 not in (batch, m, k, n):
        lines += _exact(plan, plan.scheme, (batch, m, n), k)
    return "\n".join(f"{i:>3}  {line}" for i, line in enumerate(lines, 1))


def _exact(plan: Plan, scheme: Scheme, stack: tuple[int, int, int], k: int) -> list[str]:
    """The steps between descriptions and result, for slices through float64 BLAS."""
    engine = engine_of(scheme, k * min(plan.parts), plan.engine == "int8")
    panel, slabs = panel_of(engine, stack, plan.workspace_limit), -(-k // engine.slab)
    panels = f"for each panel of {min(panel.rows, stack[1])} x {min(panel.columns, stack[2])} entries"
    inner = "" if slabs == 1 else f", {slabs} slabs of {engine.slab} inner indices"
    return [
        f"split                a, b -> {engine.what}, as float64   {panels}{inner}",
        f"multiply             {engine.planes} products by BLAS, exact   likewise",
        "recombine            products -> c   the exact integer, rounded once; likewise",
    ]
