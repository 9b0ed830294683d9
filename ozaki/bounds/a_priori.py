"""Digits and residues before a proof: their bound for any operands (B4), and what to expect of ordinary ones.

The estimates (E1, E3, E4) guide planning and prove nothing.
"""

from __future__ import annotations

from math import hypot, inf, ldexp, log, pi, sqrt

from ozaki.bounds.description import Least
from ozaki.bounds.rounding import UP, scaled
from ozaki.caches import cached
from ozaki.schemes import Scheme, scaling_of


@cached(1024)
def a_priori(scheme: Scheme, k: int, exponent: int = 0) -> float:
    """B4: abs(E_ij) / (norm(a_i) norm(b_j)) for any operands of inner dimension k, from the scaling rule alone.

    In units of 2**exponent.

    The rule gives a row the largest g that fits, so its image is at least half (norm scaling: in norm; max scaling:
    in the largest element) of what would fit, less what rounding the magnitudes up may have added.
    """
    scaling = scheme.scaling(k)
    if scaling is None:
        return inf
    width = scaling.width
    if scaling.statistic == "squares":
        image_norm = sqrt(scaling.threshold) / 2 / (1 + sqrt(k) / 2 ** (width - 1))
    else:
        image_norm = scaling.threshold / 2 / (1 + 2.0 ** (1 - width))
    bits = width - scaling.base
    u, u_unscaled = scaled(0.5 / image_norm, bits - exponent), ldexp(0.5 / image_norm, max(bits, -1000))
    return (2 * sqrt(k) * u + k * u * u_unscaled + k * scheme.drop * 4 * u * u_unscaled) * UP


# Estimates ----------------------------------------------------------------------------------------------------------


@cached(1024)
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


@cached(1024)
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
        return scaled(sqrt(1 / 6) / (2 / pi * image_norm), scaling.width - scaling.base - exponent)
    tail = sqrt(2 * log(2 * max(k, 2)))  # the largest of k normal numbers, in units of sigma
    largest = max(tail - (log(tail * tail / 2) + log(4 * pi)) / (2 * tail), 1.0)
    sigma = float(scheme.largest) / largest / _OF_WHAT_FITS
    rounding = sqrt(1 / 6) / (2 / pi * sqrt(k) * sigma)
    dropped = scheme.usual_drop / (2 / pi * sqrt(k) * sigma * sigma)
    return scaled(hypot(rounding, dropped), -exponent)


_OF_WHAT_FITS = 1.47
"""Root mean square of the largest image that would fit over the image that a row has, since bits are whole."""
