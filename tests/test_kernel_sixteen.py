"""16-bit numbers in kernels: kernels/arithmetic/sixteen.cuh and row_proof.cuh against Python's fractions and NumPy."""

from fractions import Fraction

import numpy as np
import pytest
from row_digits_definition import bits_of
from shim import call, compiled

from ozaki.bounds.row_digits import RowStatistics, as_units, errors, least_products, least_tables
from ozaki.schemes import magnitude_bits
from ozaki.schemes.row_digits import THRESHOLDS, RowDigits

SOURCE = """
#include "arithmetic/row_proof.cuh"

template <typename T> void narrowed_all(const uint16_t* x, uint32_t* wide, uint16_t* back, int64_t n) {
  for (int64_t i = 0; i < n; ++i) wide[i] = widened<T>(x[i]), back[i] = narrowed<T>(wide[i]);
}
template <typename T, int P>
void rounded(const int32_t* sums, const int32_t* e, uint16_t* fast, uint16_t* exact, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    int32_t of[P];
    for (int s = 0; s < P; ++s) of[s] = sums[P * i + s];
    const float v = joined_to_odd<P>(of);
    const float scaled = scaled_to_odd(v, e[i]);
    fast[i] = static_cast<uint16_t>(rounded_pair<T>(scaled, scaled));
    if (usual_exponent(e[i])) {
      const float once = v * float_of_bits(static_cast<uint32_t>(e[i] + 127) << 23);
      if (rounded_pair<T>(once, 0.0f) != fast[i]) fast[i] = 0xffff;
    }
    exact[i] = round_joined<T>(joined<P>(of), e[i]);
  }
}
template <typename T>
void added(const int32_t* sums, const int32_t* e, const float* c, uint16_t* found, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t of[2] = {sums[2 * i], sums[2 * i + 1]};
    const float v = added_to_odd(joined<2>(of), e[i], c[i]);
    found[i] = static_cast<uint16_t>(rounded_pair<T>(v, v));
  }
}
template <int P, int Q> void proof(const uint64_t* row, const uint64_t* of_columns, const uint32_t* counts,
                                   const uint32_t* missing, int width, double* error, double* least) {
  OfRow of_row = {row[0], row[1], {row[2], row[3]}};
  Columns columns = {of_columns[0], of_columns[1], {of_columns[2], of_columns[3]}, {}};
  uint64_t beyond[THRESHOLDS], after = 0, sum = 0;
  for (int b = THRESHOLDS - 1; b >= 0; --b) beyond[b] = after += static_cast<uint64_t>(threshold_step(b)) * missing[b];
  for (int b = 0; b < THRESHOLDS; ++b) sum += least_terms(b, counts[b], missing, beyond);
  double roots[ROOTS<Q>];
  for (int i = 0; i < ROOTS<Q>; ++i) roots[i] = rounded_root(under_root<P, Q>(i, of_row, columns));
  *error = row_error<P, Q>(roots, width);
  *least = least_entry(sum);
}

extern "C" {
"""
OF_FORMAT = """
void widened_{name}(const uint16_t* x, uint32_t* wide, uint16_t* back, int64_t n) {{
  narrowed_all<{name}>(x, wide, back, n);
}}
void rounded_{name}_2(const int32_t* sums, const int32_t* e, uint16_t* fast, uint16_t* exact, int64_t n) {{
  rounded<{name}, 2>(sums, e, fast, exact, n);
}}
void added_{name}(const int32_t* sums, const int32_t* e, const float* c, uint16_t* found, int64_t n) {{
  added<{name}>(sums, e, c, found, n);
}}
void rounded_{name}_3(const int32_t* sums, const int32_t* e, uint16_t* fast, uint16_t* exact, int64_t n) {{
  rounded<{name}, 3>(sums, e, fast, exact, n);
}}
void rounded_{name}_4(const int32_t* sums, const int32_t* e, uint16_t* fast, uint16_t* exact, int64_t n) {{
  rounded<{name}, 4>(sums, e, fast, exact, n);
}}
"""
PROOF = """
void proof_{p}_{q}(const uint64_t* row, const uint64_t* columns, const uint32_t* counts, const uint32_t* missing,
                   double* error, double* least, int64_t width) {{
  proof<{p}, {q}>(row, columns, counts, missing, static_cast<int>(width), error, least);
}}
"""
NAMES = {"bfloat16": "BFloat16", "float16": "Float16"}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE + "".join(OF_FORMAT.format(name=name) for name in NAMES.values())
    source += "".join(PROOF.format(p=p, q=q) for p, q in ((2, 2), (3, 2), (3, 3), (4, 3))) + "}\n"
    return compiled(source, tmp_path_factory.mktemp("sixteen"))


@pytest.mark.parametrize("half", NAMES)
def test_every_number_is_widened_and_narrowed(shim, half):
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    wide, back = np.empty(2**16, np.uint32), np.empty(2**16, np.uint16)
    call(getattr(shim, f"widened_{NAMES[half]}"), bits, wide, back, 2**16)
    values = wide.view(np.float32)
    expected = (
        bits.view(np.float16).astype(np.float32) if half == "float16" else (bits.astype(np.uint32) << 16).view("f4")
    )
    nan = np.isnan(expected)
    assert np.array_equal(wide[~nan], expected.view(np.uint32)[~nan]) and np.isnan(values[nan]).all()
    assert np.array_equal(back[~nan], bits[~nan])
    assert all(((back[nan] & 0x7FFF) > (0x7C00 if half == "float16" else 0x7F80)).tolist())


@pytest.mark.parametrize("digits", [2, 3, 4])
@pytest.mark.parametrize("half", NAMES)
def test_sums_are_rounded_once(shim, half, digits):
    rng, n = np.random.default_rng(digits), 20000
    sums = (rng.standard_normal((n, digits)) * 2.0 ** rng.integers(0, 30, (n, digits))).astype(np.int32)
    sums[: n // 4, 0] = rng.integers(-4, 5, n // 4)
    sums[n // 4 : n // 2, 1:] = 0
    half_way = slice(n // 2, 3 * n // 4)  # and a unit beside it, at most
    precision = 8 if half == "bfloat16" else 11
    sums[half_way] = 0
    sums[half_way, 0] = (2 * rng.integers(2 ** (precision - 1), 2**precision, n // 4) + 1) << rng.integers(0, 8, n // 4)
    sums[half_way, -1] = rng.integers(-1, 2, n // 4)
    sums[0] = 0
    exponents = rng.integers(-60, 10, n).astype(np.int32)
    exponents[::5] = rng.integers(-310, 250, len(exponents[::5]))
    exponents[1::5] = rng.integers(-180, -150, len(exponents[1::5])) if half == "bfloat16" else rng.integers(-70, -30)
    fast, exact = np.empty((2, n), np.uint16)
    call(getattr(shim, f"rounded_{NAMES[half]}_{digits}"), sums, exponents, fast, exact, n)
    assert np.array_equal(fast, exact), np.flatnonzero(fast != exact)[:5]
    for i in range(0, n, 7):
        v = sum(int(x) << 8 * (digits - 1 - s) for s, x in enumerate(sums[i]))
        assert exact[i] == bits_of(v * Fraction(2) ** int(exponents[i]), half), i


@pytest.mark.parametrize("half", NAMES)
def test_sums_with_an_addend_are_rounded_once(shim, half):
    rng, n = np.random.default_rng(5), 6000
    sums = (rng.standard_normal((n, 2)) * 2.0 ** rng.integers(0, 30, (n, 2))).astype(np.int32)
    exponents = rng.integers(-60, 0, n).astype(np.int32)
    exponents[::6] = rng.integers(-302, 230, len(exponents[::6]))
    values = [(int(x) * 256 + int(y)) * Fraction(2) ** int(e) for (x, y), e in zip(sums, exponents, strict=True)]
    c = rng.standard_normal(n).astype(np.float32)
    with np.errstate(over="ignore"):
        near = np.array([float(v) if abs(v) < 2**127 else 1.0 for v in values]).astype(np.float32)
        c[::2] = -near[::2]  # cancels
        c[1::4] = np.ldexp(near[1::4], rng.integers(-40, 40, len(c[1::4])))
    c[~np.isfinite(c)] = 1
    found = np.empty(n, np.uint16)
    call(getattr(shim, f"added_{NAMES[half]}"), sums, exponents, c, found, n)
    for i, (value, addend) in enumerate(zip(values, c.tolist(), strict=True)):
        assert found[i] == bits_of(value + Fraction(addend), half), i


@pytest.mark.parametrize(("half", "digits"), [("bfloat16", 2), ("bfloat16", 3), ("float16", 3), ("float16", 4)])
def test_proofs_are_those_of_numpy(shim, half, digits):
    rng, scheme = np.random.default_rng(0), RowDigits(half)
    for _ in range(200):
        k = int(rng.integers(1, 2 ** rng.integers(1, 25)))
        counts, of_columns = (np.sort(rng.integers(0, k + 1, THRESHOLDS)) for _ in range(2))
        if rng.random() < 0.7:
            of_columns = np.sort(rng.integers(k * 9 // 10, k + 1, THRESHOLDS))
        row, columns = (
            RowStatistics(*(np.array(x) for x in (int(rng.integers(0, 4 * k)), rng.integers(0, 2**55, scheme.low),
                                                  int(rng.integers(0, 2**60)), c)))
            for c in (counts, of_columns)
        )  # fmt: skip
        error, least = np.empty(1), np.empty(1)
        rows = [
            np.array([of.inexact, of.squares, of.low[0], of.low[1] if len(of.low) > 1 else 0], np.uint64)
            for of in (row, columns)
        ]
        given = *rows, counts.astype(np.uint32), (k - of_columns).astype(np.uint32), error, least
        call(getattr(shim, f"proof_{digits}_{scheme.columns}"), *given, magnitude_bits(k))
        assert error[0] == errors(scheme, digits, k, row, columns)
        tables = least_tables(k, of_columns[None])
        assert least[0] == as_units(least_products(k, counts[None], tables, np.zeros(1, np.int64)))[0]
