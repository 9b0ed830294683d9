"""alpha V 2**e + beta c, rounded once: kernels/arithmetic/combination.cuh against Python's fractions."""

from fractions import Fraction

import numpy as np
import pytest
from cases import FORMATS, power, rounded
from shim import call, compiled, to_words

LIMBS = (1, 2, 4, 11)

SOURCE = """
#include "arithmetic/combination.cuh"

template <int W, typename T, typename Addend>
void all(const uint32_t* v, const int* e, const double* alpha, const double* beta, const Addend* c, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t limbs[W];
    for (int w = 0; w < W; ++w) limbs[w] = v[i * W + w];
    const auto bits = combined_or_special<T>(limbs, e[i], alpha[i], beta[i], c[i]);
    __builtin_memcpy(out + i, &bits, sizeof(T));
  }
}

extern "C" {
"""
OF = """
void combined_{w}_{name}(const uint32_t* v, const int* e, const double* alpha, const double* beta, const {addend}* c,
                         {output}* out, int64_t n) {{
  all<{w}>(v, e, alpha, beta, c, out, n);
}}
"""
FORMS = {"dd": ("double", "double"), "df": ("double", "float"), "ff": ("float", "float")}
DTYPES = {"double": "f8", "float": "f4"}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    functions = (
        OF.format(w=w, name=name, output=output, addend=addend)
        for w in LIMBS
        for name, (output, addend) in FORMS.items()
    )
    return compiled(SOURCE + "".join(functions) + "}\n", tmp_path_factory.mktemp("combination"))


def fraction(x):
    return Fraction(float(x))


def number(prng, lowest, highest):
    """A float of any bits, few bits, or a power of two, with an exponent in that range."""
    bits = prng.choice([1, 3, 24, 53])
    value = (prng.getrandbits(bits) | 1) * 2.0 ** (prng.randint(lowest, highest) - bits)
    return prng.choice([value, -value])


def cases(prng, limbs, output, addend, count):
    """V, exponent, alpha, beta, c: far apart and near, sums that cancel wholly or nearly, ties, subnormals, zeros."""
    precision, smallest, top = FORMATS[output]
    _, least, most = FORMATS[addend]
    found = []
    for _ in range(count):
        length = prng.randrange(1, 32 * limbs)
        v = prng.choice([1, -1]) * (prng.getrandbits(length) | prng.choice([0, 1 << length - 1]))
        e = prng.choice([prng.randint(-80, 40) - length, prng.randint(smallest - 5, top + 5) - length])
        alpha, beta = number(prng, -30, 30), number(prng, -30, 30)
        kind = prng.randrange(6)
        if kind == 0:  # anywhere
            c = number(prng, least + 53, most - 1)
        elif kind == 1:  # what cancels V, rounded to c
            c = rounded(-fraction(alpha) * v * power(e) / fraction(beta), addend)
        elif kind == 2 and abs(v) < 2**24:  # what cancels V exactly
            alpha, beta = prng.choice([(1.0, -1.0), (-0.5, 2.0), (3.0, -3.0)])
            e = max(min(e, 60), -60)
            c = rounded(-fraction(alpha) * v * power(e) / fraction(beta), addend)
        elif kind == 3:  # next to a tie of V
            c = number(prng, least + 53, min(e, most - 1)) if e > least + 53 else 0.0
            v = v << max(0, min(precision + 3, 32 * limbs - 1) - abs(v).bit_length()) if v else v
            alpha = prng.choice([1.0, -2.0])
        elif kind == 4:
            c, v = prng.choice([0.0, -0.0, number(prng, -20, 20), 2.0**least]), prng.choice([0, v])
        else:  # factors at the ends of their range
            alpha, beta = number(prng, -1000, 1000), number(prng, -1000, 1000)
            c = number(prng, -20, 20)
        with np.errstate(over="ignore", under="ignore"):
            c = float(np.dtype(addend).type(c))
        if np.isfinite(c) and abs(v) < 2 ** (32 * limbs - 1):
            found.append((v, e, alpha, beta, c))
    return found


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("limbs", LIMBS)
def test_combined(shim, prng, limbs, name):
    output, addend = (str(np.dtype(DTYPES[kind])) for kind in FORMS[name])
    given = cases(prng, limbs, output, addend, 6000)
    v, e, alpha, beta, c = zip(*given, strict=True)
    out = np.empty(len(given), output)
    arrays = np.array(e, np.int32), np.array(alpha), np.array(beta), np.array(c, addend)
    call(getattr(shim, f"combined_{limbs}_{name}"), to_words(v, limbs), *arrays, out, len(given))
    zeros = 0
    for case, got in zip(given, out, strict=True):
        v, e, alpha, beta, c = case
        exact = fraction(alpha) * v * power(e) + fraction(beta) * fraction(c)
        zeros += exact == 0
        assert got.tobytes() == rounded(exact, output).tobytes(), (case, got)
    assert zeros > 10


def test_special_addends(shim):
    """NaN gives the quiet NaN, Inf itself with the sign of beta; whatever V is."""
    c = np.array([np.nan, -np.nan, np.inf, -np.inf, np.inf])
    beta = np.array([1.0, -1.0, 2.0, 2.0, -0.5])
    out, n = np.empty(5), len(c)
    v, e = to_words([1, 0, -(2**30), 2**30, -1], 1), np.array([0, 0, 3000, 3000, 0], np.int32)
    call(shim.combined_1_dd, v, e, np.ones(n), beta, c, out, n)
    expected = np.array([np.nan, np.nan, np.inf, -np.inf, -np.inf])
    assert out.tobytes() == np.abs(expected[:2]).tobytes() + expected[2:].tobytes()
