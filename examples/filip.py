"""Filippelli's regression, a polynomial of degree 10, to all digits that NIST certifies, with standard errors.

The powers of the data are so nearly dependent that `numpy.linalg.lstsq` takes the matrix for one of less rank by
default, and finds another polynomial. Here the data are read as the decimal numbers that they are, and `ozaki.linalg`
proves the errors of what it returns.

Data and certified values: A. Filippelli, in NIST's Statistical Reference Datasets, which are in the public domain.
"""

from decimal import Decimal, localcontext

import mpmath
import numpy as np

import ozaki

X = """
-6.860120914 -4.324130045 -4.358625055 -4.358426747 -6.955852379 -6.661145254 -6.355462942 -6.118102026 -7.115148017
-6.815308569 -6.519993057 -6.204119983 -5.853871964 -6.109523091 -5.79832982 -5.482672118 -5.171791386 -4.851705903
-4.517126416 -4.143573228 -3.709075441 -3.499489089 -6.300769497 -5.953504836 -5.642065153 -5.031376979 -4.680685696
-4.329846955 -3.928486195 -8.56735134 -8.363211311 -8.107682739 -7.823908741 -7.522878745 -7.218819279 -6.920818754
-6.628932138 -6.323946875 -5.991399828 -8.781464495 -8.663140179 -8.473531488 -8.247337057 -7.971428747 -7.676129393
-7.352812702 -7.072065318 -6.774174009 -6.478861916 -6.159517513 -6.835647144 -6.53165267 -6.224098421 -5.910094889
-5.598599459 -5.290645224 -4.974284616 -4.64454848 -4.290560426 -3.885055584 -3.408378962 -3.13200249 -8.726767166
-8.66695597 -8.511026475 -8.165388579 -7.886056648 -7.588043762 -7.283412422 -6.995678626 -6.691862621 -6.392544977
-6.067374056 -6.684029655 -6.378719832 -6.065855188 -5.752272167 -5.132414673 -4.811352704 -4.098269308 -3.66174277
-3.2644011
"""

Y = """
0.8116 0.9072 0.9052 0.9039 0.8053 0.8377 0.8667 0.8809 0.7975 0.8162 0.8515 0.8766 0.8885 0.8859 0.8959 0.8913
0.8959 0.8971 0.9021 0.909 0.9139 0.9199 0.8692 0.8872 0.89 0.891 0.8977 0.9035 0.9078 0.7675 0.7705 0.7713 0.7736
0.7775 0.7841 0.7971 0.8329 0.8641 0.8804 0.7668 0.7633 0.7678 0.7697 0.77 0.7749 0.7796 0.7897 0.8131 0.8498 0.8741
0.8061 0.846 0.8751 0.8856 0.8919 0.8934 0.894 0.8957 0.9047 0.9129 0.9209 0.9219 0.7739 0.7681 0.7665 0.7703 0.7702
0.7761 0.7809 0.7961 0.8253 0.8602 0.8809 0.8301 0.8664 0.8834 0.8898 0.8964 0.8963 0.9074 0.9119 0.9228
"""

COEFFICIENTS = """
-1467.48961422980 -2772.17959193342 -2316.37108160893 -1127.97394098372 -354.478233703349 -75.1242017393757
-10.8753180355343 -1.06221498588947 -0.670191154593408E-01 -0.246781078275479E-02 -0.402962525080404E-04
"""

ERRORS = """
298.084530995537 559.779865474950 466.477572127796 227.204274477751 71.6478660875927 15.2897178747400
2.23691159816033 0.221624321934227 0.142363763154724E-01 0.535617408889821E-03 0.896632837373868E-05
"""


def agrees(value, certified):
    """Whether a number rounds to a certified one, at the last digit of that."""
    unit = mpmath.mpf(10) ** Decimal(certified).as_tuple().exponent
    return abs(value - mpmath.mpf(certified)) <= unit / 2


def main():
    x, y, coefficients, errors = (text.split() for text in (X, Y, COEFFICIENTS, ERRORS))
    with localcontext(prec=120):  # powers of ten digits have up to a hundred
        a = ozaki.mparray([[str(Decimal(each) ** j) for j in range(11)] for each in x], bits=400)
    y = ozaki.mparray(y, bits=400)
    b = ozaki.linalg.lstsq(a, y, accuracy=ozaki.Accuracy("relative", 1e-20), dtype="mp").x
    residual = y - ozaki.matmul(a, b, accuracy="exact")

    # The standard errors are the root of the mean square, times the norms of the rows of the pseudoinverse.
    inverse = ozaki.linalg.lstsq(a, np.eye(len(x)), accuracy=1e-25, dtype="mp").x
    squares = ozaki.matmul(inverse, inverse.T, accuracy="exact").to_mpmath()
    with mpmath.workprec(200):
        mean = ozaki.matmul(residual, residual, accuracy="exact").to_mpmath() / (len(x) - 11)
        found = [(value, mpmath.sqrt(mean * squares[j, j])) for j, value in enumerate(b.to_mpmath())]
        float64 = np.linalg.lstsq(a.astype("float64"), y.astype("float64"), rcond=None)[0]
        print("power  NumPy                ozaki                   standard error")
        for j, (value, error) in enumerate(found[::2]):
            print(f"{2 * j:5}  {float64[2 * j]:<19.12g}  {mpmath.nstr(value, 18):<22}  {mpmath.nstr(error, 16)}")
        for (value, error), known, of_error in zip(found, coefficients, errors, strict=True):
            assert agrees(value, known) and agrees(error, of_error), (value, known, error, of_error)
    print("all certified digits of the coefficients and of their standard errors are right")


if __name__ == "__main__":
    main()
