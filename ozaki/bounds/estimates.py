"""What to expect of ordinary operands (E1, E3, E4): estimates that guide planning and prove nothing."""

from __future__ import annotations

from functools import lru_cache
from math import hypot, inf, log, pi, sqrt

from ozaki.bounds.description import Least
from ozaki.bounds.exact import a_priori
from ozaki.bounds.rounding import scaled
from ozaki.schemes import Scheme, magnitude_bits, scaling_of


@lru_cache(maxsize=1024)
def usual_worst(scheme: Scheme, k: int) -> float:
    """E3, an estimate, no bound: what B1 comes to, componentwise, for normal data.

    It is made for digits, whose dropped pairs grow with the largest elements of two rows. B4 allows for rows of one
    nonzero element; in normal rows the largest one has 2 log(2k) / k of the sum of squares, and sum abs(a b) is 2/pi of
    the product of the norms.
    """
    return a_priori(scheme, k) * min(2 * log(2 * k) / k, 1.0) * pi / 2


def usual_of_sample(left: Least, right: Least, some: int, digits: Scheme, k: int) -> float:
    """E4, an estimate, no bound: what B1 comes to, componentwise, for rows of which `some` elements were described.

    Every entry of abs(A) abs(B) is taken to be s_i s_j / k, s the sum of a row, for the rows of least s in A and in B.
    Combining the two worst rows makes up for the inner indices that the first level of B7 does not read.
    """
    scaling = scaling_of(digits, k)
    ulp, (x, y) = 2.0**-scaling.base, (some / side.sums for side in (left, right))
    return ulp / 2 * (x + y) + (ulp * ulp / 4 + digits.drop * ulp * ulp) * x * y


@lru_cache(maxsize=1024)
def usual_rms(scheme: Scheme, k: int, exponent: int = 0) -> float:
    """E1, an estimate, no bound: root-mean-square componentwise error on normal data, in units of 2**exponent.

    Independent rounding errors of variance 1/12; sum abs(a b) is 2/pi sqrt(k)**2 sigma**2; rounding bits down leaves
    a row with a fraction f of what would fit, 1/f being 1.47 in root mean square.
    """
    scaling = scheme.scaling(k)
    if scaling is None:
        return inf
    if scaling.statistic == "squares":
        image_norm = sqrt(scaling.threshold) / _OF_WHAT_FITS
        return scaled(sqrt(1 / 6) / (2 / pi * image_norm), magnitude_bits(k) - scaling.base - exponent)
    tail = sqrt(2 * log(2 * max(k, 2)))  # the largest of k normal numbers, in units of sigma
    largest = max(tail - (log(tail * tail / 2) + log(4 * pi)) / (2 * tail), 1.0)
    sigma = float(scheme.largest) / largest / _OF_WHAT_FITS
    rounding = sqrt(1 / 6) / (2 / pi * sqrt(k) * sigma)
    dropped = scheme.usual_drop / (2 / pi * sqrt(k) * sigma * sigma)
    return scaled(hypot(rounding, dropped), -exponent)


_OF_WHAT_FITS = 1.47
"""Root mean square of the largest image that would fit over the image that a row has, since bits are whole."""
