"""Products with accuracy="exact" by schemes that the caller names: what is not refused is exact."""

from fractions import Fraction

import numpy as np
import pytest
from cases import rounded_product

import ozaki
from ozaki.schemes.named import scheme_of

NAMES = "digits", "digits7", "fp16-digits", "residues"


def cancelling(prng, k, span):
    """A row and a column of length k: large elements whose products cancel, and small ones whose products do not."""
    large = float(2**span * prng.randrange(2**52, 2**53) >> 53)
    n = 2.0 * prng.randrange(2**51, 2**52)
    a, b = np.zeros((1, k)), np.zeros((k, 1))
    places = prng.sample(range(k), 4)
    a[0, places] = large, -large, n, n - 1
    b[places, 0] = large, large, n, -(n + 1)
    return a, b


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_refused_is_exact(name, prng):
    """The product is that of Python's integers; a plan of it serves the operands that it was made from."""
    ran, refused = 0, []
    for _ in range(60):
        span = prng.randrange(54, 240)
        a, b = cancelling(prng, prng.choice([4, 5, 7, 100, 3000]), span)
        if prng.random() < 0.3:
            a, b = (np.sign(x) * np.minimum(np.abs(x), 2.0 ** prng.randrange(1, 54)) for x in (a, b))
        exact = float(sum(Fraction(x) * Fraction(y) for x, y in zip(a.ravel(), b.ravel(), strict=True) if x and y))
        # Any count; about as many as hold the images alone; and as many as residues.
        residues = ozaki.matmul(a, b, accuracy="exact", return_report=True)[1].slices
        near = [span // 8, span // 7, residues, residues + 1]
        count = prng.choice([prng.randrange(1, 64), min(max(prng.choice(near), 1), 64)])
        options = {"accuracy": "exact", "scheme": name, "slices": count}
        try:
            c, report = ozaki.matmul(a, b, return_report=True, **options)
        except ValueError as error:
            refused.append(str(error))
            continue
        ran += 1
        assert c[0, 0] == exact, (report.scheme, count, a, b)
        assert report.unrounded_bound == 0
        plan = ozaki.plan(a, b, **options)
        assert ozaki.matmul(a, b, plan=plan)[0, 0] == exact
    assert ran and refused
    assert all(message.startswith("slices: ") for message in refused)


def test_digits_that_leave_pairs_out_are_refused():
    """These need more digits than residues: 22 digits leave out pairs that count, 27 leave out none."""
    k, n = 10**5, float(2**52 + 2**51 + 12346)
    a, b = np.zeros((1, k)), np.zeros((k, 1))
    a[0, :2], b[:2, 0] = (n, n - 1), (n, -(n + 1))
    with pytest.raises(ValueError, match=r"^slices: 22 fp16-digits4 do not hold every bit"):
        ozaki.matmul(a, b, accuracy="exact", scheme="fp16-digits", slices=22)
    assert ozaki.matmul(a, b, accuracy="exact", scheme="fp16-digits", slices=27)[0, 0] == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_family_chooses_its_own_count(name, prng):
    """One slice less is refused."""
    a, b = cancelling(prng, 5, 60)
    options = {"accuracy": "exact", "scheme": name}
    c, report = ozaki.matmul(a, b, return_report=True, **options)
    assert c[0, 0] == rounded_product(a, b)[0, 0]
    assert report.scheme.startswith(name)
    with pytest.raises(ValueError, match=rf"^slices: {report.slices - 1} .* do not hold every bit"):
        ozaki.matmul(a, b, slices=report.slices - 1, **options)


def test_wide_digits_are_fewer_than_residues():
    """37 digits of 11 bits hold the bits of rows that 55 residues would."""
    a = np.array([[2.0**198, 1, 0, 0, 0]])
    assert scheme_of("fp16-digits12", 37).bits > 11
    c, report = ozaki.matmul(a, a.T, accuracy="exact", scheme="fp16-digits", return_report=True)
    assert c[0, 0] == 2.0**396
    assert report.slices < ozaki.matmul(a, a.T, accuracy="exact", return_report=True)[1].slices


def test_rows_that_no_digits_hold():
    a = np.array([[2.0**500, 1.0]])
    assert ozaki.matmul(a, a.T, accuracy="exact")[0, 0] == 2.0**1000
    with pytest.raises(ValueError, match=r"^accuracy: .* too many for .* by digits7; use scheme='residues'"):
        ozaki.matmul(a, a.T, accuracy="exact", scheme="digits7")


@pytest.mark.parametrize("x", [np.zeros((2, 2), "f"), np.zeros((0, 0), "f"), np.ones((2, 2), "f")])
@pytest.mark.parametrize("scheme", ["triple-bf16", "halfhalf", ozaki.Words()])
def test_words_are_not_exact(x, scheme):
    with pytest.raises(ValueError, match=r"^accuracy: products of .* are rounded"):
        ozaki.matmul(x, x, accuracy="exact", scheme=scheme)
    with pytest.raises(ValueError, match=r"^accuracy: products of .* are rounded"):
        ozaki.emulate(accuracy="exact", scheme=scheme)


@pytest.mark.parametrize("more", [{}, {"reproducible": True}, {"engine": "float64"}])
def test_the_native_product_is_not_exact(more):
    with pytest.raises(ValueError, match=r"^(accuracy|scheme|engine): .*native"):
        ozaki.matmul(np.ones((2, 2)), np.ones((2, 2)), accuracy="exact", scheme="native", **more)
