#!/usr/bin/env bash
# SymPy: floats that are converted to the field QQ, as by DomainMatrix.convert_to, become near rationals, with
# denominators up to 2^53 / 200, and not the numbers that they are: what is computed exactly in QQ, to check a product
# or a determinant of floats, is that of other numbers. Those of the size of 1e-12 lose two or three digits: they do not
# even round to the float that they come from. Rational(x) is exact. With gmpy2 or python-flint SymPy does the same.
# seen: sympy 1.14.0
# seen: 0.1 -> 1/10 and by Rational -> 3602879701896397/36028797018963968
# seen: 5.353510107645075e-13 -> 7/13075533358952 which is 5.353510107645083e-13
# seen: determinant of [[0.1, 0.3], [0.3, 0.9]] over QQ -> 0 and by Rational -> 1/72057594037927936
# seen: square of a 4 x 4 matrix of normal numbers over QQ: 0 of 16 entries are those of the floats
# seen: 500 normal numbers times 1: 7 are exact, 500 round to their float, worst error 2.3e-24
# seen: 500 normal numbers times 1e-06: 0 are exact, 500 round to their float, worst error 3.0e-19
# seen: 500 normal numbers times 1e-12: 9 are exact, 55 round to their float, worst error 1.7e-14
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check sympy==1.14.0 mpmath==1.3.0
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import random
from fractions import Fraction

import sympy
from sympy import QQ, Matrix, Rational


def over_qq(rows):
    return Matrix(rows).to_DM().convert_to(QQ)


def fractions(matrix):
    return [[Fraction(int(x.numerator), int(x.denominator)) for x in row] for row in matrix.to_list()]


print("sympy", sympy.__version__)
tenth, tiny = fractions(over_qq([[0.1, 5.353510107645075e-13]]))[0]
print("0.1 ->", tenth, "and by Rational ->", Rational(0.1))
print("5.353510107645075e-13 ->", tiny, "which is", float(tiny))
assert tenth == Fraction(1, 10) and Rational(0.1) == Fraction(0.1) and float(tiny) != 5.353510107645075e-13

a = [[0.1, 0.3], [0.3, 0.9]]
true = Fraction(0.1) * Fraction(0.9) - Fraction(0.3) ** 2
print("determinant of", a, "over QQ ->", over_qq(a).det(), "and by Rational ->", Matrix(a).applyfunc(Rational).det())
assert over_qq(a).det() == 0 != true == Matrix(a).applyfunc(Rational).det()

draws = random.Random(0)
a = [[draws.gauss(0, 1) for _ in range(4)] for _ in range(4)]
c = fractions(over_qq(a) ** 2)
true = [[sum(Fraction(a[i][t]) * Fraction(a[t][j]) for t in range(4)) for j in range(4)] for i in range(4)]
equal = sum(c[i][j] == true[i][j] for i in range(4) for j in range(4))
print("square of a 4 x 4 matrix of normal numbers over QQ:", equal, "of 16 entries are those of the floats")
assert equal == 0

for size in (1.0, 1e-6, 1e-12):
    floats = [size * draws.gauss(0, 1) for _ in range(500)]
    pairs = list(zip(fractions(over_qq([floats]))[0], floats))
    exact = sum(q == Fraction(x) for q, x in pairs)
    back = sum(float(q) == x for q, x in pairs)
    worst = float(max(abs(q / Fraction(x) - 1) for q, x in pairs))
    print(f"500 normal numbers times {size:g}: {exact} are exact, {back} round to their float, worst error {worst:.1e}")
    assert exact < 50 and (back < 100 if size == 1e-12 else back == 500)
PYTHON
