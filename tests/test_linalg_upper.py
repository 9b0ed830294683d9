"""Bounds of norms of rows and columns, of zeros, subnormal and huge elements too; residuals where norms are zero."""

from fractions import Fraction

import numpy as np
import pytest

import ozaki.linalg
from ozaki.linalg.common.upper import norm_bounds

ROWS = [
    [3.0, 4.0],
    [0.0, 0.0],
    [5e-324, 0.0],
    [1e-308, 1e-310],
    [1e-200, 1.0],
    [1e300, -1e300],
    [2.0**-470, 2.0**-480],
    [1.7e308, 1.7e308],
]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("chosen", [[0, 4], [0, 1, 4], [0, 2], [3, 6], [5, 0], [1], [7, 2], list(range(8))])
def test_norms_of_rows_and_columns(chosen, axis):
    x = np.array([ROWS[i] for i in chosen])
    with np.errstate(all="ignore"):  # as in all functions of linear algebra
        least, most = norm_bounds(x if axis else x.T, axis)
    for row, low, high in zip(x.tolist(), least, most, strict=True):
        square = sum(Fraction(each) ** 2 for each in row)
        assert low < np.inf and Fraction(low) ** 2 <= square
        assert high == np.inf or square <= Fraction(high) ** 2
        assert (high == 0) == (not any(row))
        if max(map(abs, row)) > 2.0**-985 and high < np.inf:
            assert high <= low * (1 + 2.0**-28)


def test_complex_norms(rng):
    x = rng.standard_normal((4, 9)) + 1j * rng.standard_normal((4, 9))
    least, most = norm_bounds(x, 1)
    exact = np.linalg.norm(x, axis=1)
    assert (least < exact).all() and (exact < most).all() and (most < least * (1 + 2.0**-28)).all()


@pytest.mark.parametrize("accuracy", [None, "fp64"])
def test_columns_of_zeros_and_tiny_ones(accuracy):
    a = np.array([[4.0, 0.0, 1e-290], [2.0, 0.0, 3e-290], [1.0, 0.0, 1e-291]])
    if accuracy == "fp64":
        with pytest.raises(np.linalg.LinAlgError):
            ozaki.linalg.lu_factor(a, accuracy=accuracy)
        return
    found = ozaki.linalg.lu_factor(a, accuracy=accuracy)
    assert not found.u[:, 1].any() and found.error_bounds[1] < 2.0**-50
    assert found.error_bound < 2.0**-50, "columns are scaled, however small"


def test_a_large_element_where_a_factor_is_zero_is_an_error_without_bound():
    """Of a product x y whose row x is zero no residual may be left."""
    from ozaki.linalg.factors.correcting import Near, Product

    x, y = np.diag([1.0, 0.0]), np.eye(2)
    for wanted, error in ((x, 0.0), (np.diag([1.0, 1e-300]), np.inf), (np.diag([2.0, 0.0]), 1.0)):
        with np.errstate(all="ignore"):
            found = Near((x, y), lambda factors, wanted=wanted: [Product(wanted, *factors)], 2.0**-53).errors()
        assert found[1 if error == np.inf else 0] == pytest.approx(error, rel=1e-8, abs=2.0**-50)
