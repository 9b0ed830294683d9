"""The plan of a product of 16-bit floats that is rounded once to 16 bits: it needs no facts."""

from __future__ import annotations

from ozaki.bounds.rounding import with_rounding
from ozaki.records.accuracy import Accuracy
from ozaki.records.options import Options
from ozaki.records.plan import Plan, plan_of
from ozaki.records.shapes import Shapes
from ozaki.schemes.row_digits import RowDigits


def plan_for_halves(sizes: Shapes, half: str, options: Options) -> Plan:
    """The plan of a product whose rows have as many digits each as prove the tolerance of a 16-bit format.

    Its bound is componentwise, and holds for all operands: what digits do not prove of a row is computed exactly
    (docs/bounds.md, B15).
    """
    scheme = RowDigits(half)
    target = Accuracy("componentwise", scheme.tolerance)
    bound = with_rounding(scheme.tolerance, half)
    return plan_of(sizes, half, scheme, target, bound, scheme.tolerance, options, "", a_priori=True)
