"""Scheme II: residues and the Chinese remainder theorem (Ozaki, Uchino, Imamura 2025; docs/definitions.md, 4)."""

from dataclasses import dataclass
from math import isqrt, prod
from typing import ClassVar, NamedTuple

from ozaki.caches import cached
from ozaki.schemes.image import Scaling, norm_scaling
from ozaki.schemes.moduli import complex_moduli, digits_of, first_moduli, root_of_minus_one

SLACK_BITS = 10
"""The largest allowed abs(Cbar) is below half the product of the moduli by 2**-SLACK_BITS of that product."""

MOST_RESIDUES = 2**14
"""Most moduli; their product has some 240,000 bits."""

MOST_COMPLEX = 512
"""Most moduli of complex residues; their product has some 6,600 bits."""

ACCUMULATOR_DEPTH = 2**17 - 128
"""Largest k, of multiples of 128, for which int32 holds every sum of products of int8 residues."""

UNSIGNED_DEPTH = 2**16
"""Most inner indices in a sum of products of uint8 residues, in [0, m): uint32 holds all such sums."""


@dataclass(frozen=True)
class Residues:
    """`count` symmetric residues for each element.

    Those modulo numbers up to 256 are int8, and take one slice product. A larger residue is taken apart into digits of
    seven bits, and takes three products or six (`moduli.products_of`).

    Parameters
    ----------
    count : int
        Number of moduli N: 256, 255, 253, 251, 247, ..., 29, 16381, ... (`moduli.first_moduli`)
    """

    count: int

    exact: ClassVar[bool] = True
    """Slice products and their sums are exact: the bits are the same on every backend."""

    drop: ClassVar[float] = 0.0
    usual_drop: ClassVar[float] = 0.0
    """No slice product is left out."""

    @property
    def name(self) -> str:
        return "residues"

    @property
    @cached(256)
    def products(self) -> int:
        """Number of slice products."""
        return sum(digits * (digits + 1) // 2 * count for digits, count in enumerate(self.by_digits, 1))

    @property
    @cached(256)
    def moduli(self) -> tuple[int, ...]:
        """The moduli, as many as `count`."""
        return first_moduli(self.count)

    @property
    @cached(256)
    def by_digits(self) -> tuple[int, int, int]:
        """Numbers of moduli whose residues have one digit, two and three; they follow one another in this order."""
        digits = [digits_of(m) for m in self.moduli]
        return digits.count(1), digits.count(2), digits.count(3)

    @property
    @cached(256)
    def several(self) -> bool:
        """Whether some residues have several digits, so that they take several bytes and slices."""
        return self.by_digits[0] < self.count

    @property
    @cached(256)
    def bytes(self) -> int:
        """Bytes that hold one residue modulo each modulus."""
        return sum(digits * count for digits, count in enumerate(self.by_digits, 1))

    @property
    @cached(256)
    def range(self) -> int:
        """Largest absolute value that Cbar may have."""
        product = prod(self.moduli)
        return product // 2 - (product >> SLACK_BITS)

    @cached(1024)
    def scaling(self, k: int) -> Scaling | None:
        """The rule of norm scaling for rows of length k; None if the moduli are too few for this k."""
        return norm_scaling(self.largest, k)

    @property
    @cached(256)
    def largest(self) -> int:
        """Largest norm of an image row: by Cauchy and Schwarz, abs(Cbar) is then at most `range`."""
        return isqrt(self.range)

    def dropped(self, k: int, spans: tuple[int, int]) -> float:
        """Return 0: no slice product is left out."""
        return 0.0

    @property
    @cached(256)
    def growth(self) -> int:
        """Least factor by which the error bound grows when a modulus is taken away.

        The last modulus m holds log2(m) / 2 bits of each row's image, and bits are rounded down to integers.
        """
        return 1 << (self.moduli[-1].bit_length() - 1) // 2


@dataclass(frozen=True)
class ComplexResidues(Residues):
    """`count` residues for each part of a complex element: those of the real product of parts, by moduli of their own.

    Most of these moduli have a number s with s**2 = -1. Modulo such a number a complex product is two real ones, of
    x + s y and of x - s y, x + i y an element, instead of the four of parts (docs/definitions.md, section 9).

    Parameters
    ----------
    count : int
        Number of moduli: 241, 233, 229, 221, 205, ..., 53, 253, 251, ... (`moduli.complex_moduli`)
    """

    @property
    def name(self) -> str:
        return "complex-residues"

    @property
    @cached(256)
    def moduli(self) -> tuple[int, ...]:
        return complex_moduli(self.count)

    @property
    def slices(self) -> "ComplexSlices":
        """The slices of complex rows."""
        return ComplexSlices(len(_forms(self.count)), self)


class Form(NamedTuple):
    """A slice of complex elements x + i y: `real` x + `imaginary` y modulo `modulus`."""

    modulus: int
    real: int
    imaginary: int


@cached(1024)
def _forms(count: int) -> tuple[Form, ...]:
    return tuple(form for m in complex_moduli(count) for form in _forms_of(m))


def _forms_of(m: int) -> tuple[Form, ...]:
    if root := root_of_minus_one(m):
        return Form(m, 1, root), Form(m, 1, m - root)
    return Form(m, 1, 0), Form(m, 0, 1), Form(m, 1, 1)


def parts_of_products(m: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The factors by which the slice products of a modulus add up, modulo it, to the real and to the imaginary part."""
    if root := root_of_minus_one(m):
        half = (m + 1) // 2
        turned = half * pow(root, -1, m) % m
        return (half, half), (turned, m - turned)
    return (1, m - 1, 0), (m - 1, m - 1, 1)


@dataclass(frozen=True)
class ComplexSlices(Residues):
    """The slices of complex rows by complex residues, multiplied slice by slice: two or three products a modulus.

    Of x + i y, modulo a number with s**2 = -1, they are x + s y and x - s y. Modulo any other number they are x, y and
    x + y, whose products x u, y v and (x + y)(u + v) give x u - y v and x v + y u (Karatsuba, Ofman).

    Parameters
    ----------
    count : int
        Number of slices, and of their products
    of : ComplexResidues
        The scheme whose slices they are
    """

    of: ComplexResidues

    @property
    def name(self) -> str:
        return "slices of complex residues"

    @property
    def forms(self) -> tuple[Form, ...]:
        """What each slice is."""
        return _forms(self.of.count)

    @property
    def moduli(self) -> tuple[int, ...]:
        """The modulus of each slice."""
        return tuple(form.modulus for form in self.forms)

    @property
    def range(self) -> int:
        """Largest absolute value that a part of Cbar may have; the rows that are scaled by it have k real numbers."""
        return self.of.range


@dataclass(frozen=True)
class Remainders:
    """Constants of the Chinese remainder theorem for pairwise coprime moduli.

    Cbar = sum_t y_t weights[t] - q product with y_t = Cbar inverses[t] mod moduli[t] and
    q = RN(sum_t y_t / moduli[t]).
    """

    moduli: tuple[int, ...]
    product: int
    inverses: tuple[int, ...]

    @property
    def weights(self) -> tuple[int, ...]:
        """The product without each modulus; together they are as long as all moduli, times their number."""
        return tuple(self.product // m for m in self.moduli)


MOST_BYTES = 2**26
"""Most bytes of the tables of one kind, made of the constants for some moduli, that are cached."""


@cached(256)
def remainders(moduli: tuple[int, ...]) -> Remainders:
    """The constants of the Chinese remainder theorem for these moduli, which must be pairwise coprime."""
    product = prod(moduli)
    inverses = tuple(pow(product // m % m, -1, m) for m in moduli)
    return Remainders(moduli, product, inverses)
