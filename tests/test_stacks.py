"""Stacks of small products: which run by one kernel, and the arithmetic of it against Python's integers."""

import ctypes
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from shim import call, compiled, rounded_bits

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.device_planner import DevicePlanner
from ozaki.backends.cupy.devices.tiles import round_up
from ozaki.backends.cupy.products import program_of
from ozaki.backends.cupy.steps import stacks
from ozaki.records.accuracy import Accuracy
from ozaki.records.plan import Plan
from ozaki.schemes import ComplexResidues, ComplexSlices, Digits, Residues
from ozaki.schemes.grouped import (
    DEPTH,
    FEWEST,
    MOST,
    MOST_COMPLEX,
    PLACE,
    digits_at,
    grouped_constants,
    groups_of,
    places_of,
    quotients_of,
    raising,
)

H100 = devices.of("90", multiprocessors=132, shared_memory=233472)
L4 = devices.of("89", multiprocessors=58, shared_memory=102400)
COUNTS = range(FEWEST, MOST + 1)
SCHEMES = [*map(Residues, COUNTS), *map(ComplexResidues, range(FEWEST, MOST_COMPLEX + 1))]


def plan_of(scheme, shape, batch=(4096,), dtype="float64", **more):
    target = Accuracy("componentwise", 1e-10)
    return Plan(shape, batch, dtype, scheme, target, math.inf, math.inf, True, **more)


def tag_of(scheme):
    return f"{'c' if isinstance(scheme, ComplexResidues) else ''}{scheme.count}"


# Which run by one kernel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [H100, L4])
@pytest.mark.parametrize("shape", [(16, 16, 16), (1, 1, 1), (64, 64, 64), (5, 33, 200), (256, 128, 256), (17, 256, 33)])
@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        (Residues(14), "float64"),
        (Residues(7), "float32"),
        (Residues(20), "float64"),
        (Digits(3), "float32"),
        (ComplexResidues(15).slices, "complex128"),
        (ComplexResidues(7).slices, "complex64"),
    ],
)
def test_a_stack_is_one_launch_without_workspace(device, shape, scheme, dtype):
    if device is L4 and shape[1] * scheme.count > 2560:
        pytest.skip("residues of so long rows do not fit its shared memory")
    more = {"parts": (2, 2)} if isinstance(scheme, ComplexSlices) else {}
    if more and shape[1] > 128:
        pytest.skip("sums of products of parts would be too large")
    plan = plan_of(scheme, shape, dtype=dtype, workspace_limit=1, **more)
    program = program_of(plan, device)
    assert [step.name for step in program.steps] == ["stack"] and program.room.workspace == 0
    assert DevicePlanner(device).engine_name(plan).endswith(stacks.LABEL)
    (launch,) = program.steps
    assert launch.kernel.shared_mem <= device.block_memory
    assert launch.kernel.block[0] * launch.kernel.macros["BLOCKS"] <= 1024


@pytest.mark.parametrize("scheme", [Digits(3), Residues(7)])
def test_a_long_k_needs_few_rows_and_columns(scheme):
    shapes = ((256, 256, 256), (64, 256, 64), (64, 256, 65), (256, 128, 256))
    assert [stacks.multiplies(H100, plan_of(scheme, shape)) for shape in shapes] == [False, True, False, True]


@pytest.mark.parametrize(
    ("scheme", "shape", "more"),
    [
        (Residues(14), (64, 64, 64), {"batch": ()}),
        (Residues(14), (64, 64, 64), {"engine": "cublas"}),
        (Residues(14), (64, 64, 64), {"inner_scaling": True}),
        (Residues(6), (64, 64, 64), {"undecided_apart": True}),
        (Residues(14), (64, 257, 64), {}),
        (Residues(14), (300, 64, 64), {}),
        (Residues(14), (256, 256, 256), {}),
        (Residues(3), (8, 8, 8), {}),
        (Residues(21), (8, 8, 8), {}),
        (ComplexResidues(16).slices, (8, 8, 8), {"dtype": "complex128"}),
        (ComplexResidues(14).slices, (8, 129, 8), {"dtype": "complex128"}),
        (Digits(7), (8, 8, 8), {}),
        (Digits(4, 7), (8, 8, 8), {}),
    ],
)
def test_other_products_have_engines(scheme, shape, more):
    assert not stacks.multiplies(H100, plan_of(scheme, shape, **more))


@pytest.mark.parametrize(
    ("device", "scheme", "k", "expected"),
    [
        (H100, Residues(14), 64, True),
        (H100, Residues(14), 128, True),
        (H100, Residues(7), 50, True),
        (H100, Residues(14), 32, False),  # fewer rows than a warpgroup multiplies
        (H100, Residues(15), 64, False),  # whose images are split
        (H100, Digits(3), 64, False),
        (L4, Residues(14), 64, False),
    ],
)
def test_warpgroups_of_hopper_multiply_64_rows(device, scheme, k, expected):
    tile = stacks.tile_of(device, scheme, k, k, k)
    assert tile.wgmma == expected
    if expected:
        assert (tile.rows, 16 * tile.pieces * tile.shared_by) == (64, round_up(k, 64))
        assert tile.nbytes >= (tile.rows + tile.cols) * (round_up(scheme.count * round_up(k, 64), 128) + 4)


@pytest.mark.parametrize("count", range(4, 21))
def test_the_kernel_takes_every_tile_of_warpgroups(count):
    """What kernels/stacks/stack.cu asserts of them, of all shapes."""
    sizes, depths = (1, 16, 17, 48, 49, 64, 65, 100, 200, 256), (1, 16, 33, 50, 64, 65, 100, 128, 129, 192, 200, 256)
    for m, k, n in product(sizes, depths, sizes):
        tile = stacks.tile_of(H100, Residues(count), m, k, n)
        if tile is not None and tile.wgmma:
            assert (tile.rows, tile.pieces, tile.warps) == (64, 4, 8) and tile.shared_by <= 2 and count <= 14
            assert tile.cols % (8 * tile.eights) == 0 and tile.nbytes <= H100.block_memory


def test_checked_and_prepared_products_have_engines():
    name = DevicePlanner(H100).engine_name(plan_of(Residues(14), (64, 64, 64)), in_steps=True)
    assert not name.endswith(stacks.LABEL)


# Arithmetic ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES, ids=tag_of)
def test_weights_have_the_residues_that_recombine(scheme):
    groups, places = groups_of(scheme.moduli), places_of(scheme)
    for t, m in enumerate(scheme.moduli):
        for g, (p, weight) in enumerate(zip(groups.products, groups.weights, strict=True)):
            assert weight * (p // m) % m == 1 if t // 3 == g else weight % m == 0
    for weight in groups.weights:
        assert sum(d * 2**place for d, place in zip(digits_at(weight, places), places, strict=True)) == weight


def quotient(x, place, inverse, split, kept):
    """What the kernel finds for an image x: a quotient, by the roundings of float64; `kept`: of y, not of L."""
    whole = float(x - Fraction(255, 2))
    if not split:
        return round(Fraction(whole) * Fraction(inverse))
    high = round(Fraction(x, 2**PLACE))
    low = whole if kept else float(x - high * 2**PLACE - Fraction(255, 2))
    return round(Fraction(float(Fraction(high) * Fraction(place) + Fraction(low))) * Fraction(inverse))


@pytest.mark.parametrize("scheme", SCHEMES, ids=tag_of)
def test_quotients_leave_a_byte(scheme):
    """For the longest images, where they are sure, and where not, as far as they are said to be."""
    found, count, longest = quotients_of(scheme), scheme.count, math.isqrt(scheme.range)
    numbers = np.array(found.constants, np.uint32)
    doubles = numbers[: 4 * count if found.split else 2 * count + 2].view(np.float64)
    assert found.split == (type(scheme) is Residues and count > 14) and found.unsure in (-1, 2)
    for t, m in enumerate(scheme.moduli):
        if m == 256:
            continue
        split = found.split and not found.sure >> t & 1
        place, multiple = (doubles[count + t], numbers[5 * count + t]) if found.split else (0, 0)
        largest = min(longest, int(doubles[count])) if t == found.unsure else longest
        for sign in (1, -1):
            for below in (0, largest // 3, largest - 2000, largest - 2**PLACE // 2):
                for i in range(2 * m):
                    x = int(float(sign * (largest - below - 8 * i)))
                    if abs(x) <= largest:
                        q = quotient(x, place, doubles[t], split, found.sure)
                        high = round(Fraction(x, 2**PLACE)) if split else 0
                        byte = (x + high * int(multiple) - q * m) % 2**32
                        assert byte <= 255 and (byte - x) % m == 0, (m, x)


@pytest.mark.parametrize("count", range(FEWEST, MOST_COMPLEX + 1))
def test_sums_of_complex_products_are_below_24_bits(count):
    scheme = ComplexResidues(count)
    for m, raised in zip(scheme.moduli, raising(scheme), strict=False):
        assert raised % m == 0 and raised - DEPTH // 2 * 255**2 >= 0 and raised + DEPTH // 2 * 255**2 < 2**24


SOURCE = """
#include "arithmetic/grouped.cuh"
"""
OF_SCHEME = """
struct Places{tag} {{ static constexpr int at[] = {{{places}}}; }};
template <typename T>
void entries_{tag}(const uint32_t* x, const int32_t* e, const void* c, void* out, int64_t count) {{
  const auto& constants = *static_cast<const GroupedConstants<{n}, {d}>*>(c);
  for (int64_t i = 0; i < count; ++i) {{
    GroupSums<{n}> sums = {{}};
    for (int t = 0; t < {n}; ++t) sums.add(t, x[i * {n} + t], constants);
    double s[{d}];
    digit_sums<{n}, Places{tag}>(sums.z, constants, s);
    T rounded = round_digits<T, Places{tag}, 8 * {n} - 1>(s, e[i]);
    if (is_usual<T, 8 * {n} - 1>(e[i])) rounded = round_{kind}_digits<T, Places{tag}>(s, power_of_two(e[i]));
    static_cast<T*>(out)[i] = rounded;
  }}
}}
extern "C" void entries_{tag}_64(const uint32_t* x, const int32_t* e, const void* c, void* out, int64_t count) {{
  entries_{tag}<double>(x, e, c, out, count);
}}
extern "C" void entries_{tag}_32(const uint32_t* x, const int32_t* e, const void* c, void* out, int64_t count) {{
  entries_{tag}<float>(x, e, c, out, count);
}}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    source = SOURCE
    for scheme in SCHEMES:
        places = places_of(scheme)
        d, kind = len(places), "few" if len(places) <= 4 else "more"
        listed = ", ".join(map(str, places))
        source += OF_SCHEME.format(tag=tag_of(scheme), n=scheme.count, d=d, places=listed, kind=kind)
    return compiled(source, tmp_path_factory.mktemp("stacks"))


def integers(rng, scheme):
    """Integers Cbar that are allowed: of all lengths, sums of few powers of two, ties of both formats, the ends."""
    most = scheme.range
    found = [0, 1, -1, most, -most]
    for _ in range(300):
        x = int(rng.integers(2**63)) * 2**130 + int(rng.integers(2**63)) * 2**67 + int(rng.integers(2**63))
        found.append(x % (2 ** int(rng.integers(1, most.bit_length() + 1))) * int(rng.choice([-1, 1])))
        tie = (int(rng.integers(2**54)) | 1) << int(rng.integers(130))
        found += [tie, tie + 1, tie - 1, -tie, (int(rng.integers(2**25)) | 1) << int(rng.integers(130))]
        found.append(2 ** int(rng.integers(155)) - 2 ** int(rng.integers(155)))
    return [x for x in found if abs(x) <= most]


@pytest.mark.parametrize("size", [64, 32])
@pytest.mark.parametrize("scheme", SCHEMES, ids=tag_of)
def test_entries_are_rounded_once(shim, scheme, size):
    rng = np.random.default_rng(scheme.count)
    exact = integers(rng, scheme)
    usual = -scheme.range.bit_length() // 2 + rng.integers(-30, 30, len(exact))
    unusual = rng.integers(-1300, 1100, len(exact)) if size == 64 else rng.integers(-300, 150, len(exact))
    exponents = np.where(rng.random(len(exact)) < 0.7, usual, unusual).astype(np.int32)
    largest = DEPTH * 255**2
    accumulators = np.array(
        [[x % m + m * int(rng.integers((largest - m) // m)) for m in scheme.moduli] for x in exact], np.uint32
    )
    out = np.zeros(len(exact), f"f{size // 8}")
    constants = np.array(grouped_constants(scheme), np.uint32)
    function = getattr(shim, f"entries_{tag_of(scheme)}_{size}")
    call(function, accumulators, exponents, constants, out, len(exact))
    expected = [rounded_bits(x, int(e), size) for x, e in zip(exact, exponents, strict=True)]
    assert out.view(f"u{size // 8}").tolist() == expected


def test_constants_are_as_long_as_their_struct(tmp_path):
    sizes = "".join(
        f'extern "C" int size_{n}() {{ return sizeof(GroupedConstants<{n}, {len(places_of(Residues(n)))}>); }}\n'
        for n in COUNTS
    )
    library = compiled(SOURCE + sizes, tmp_path)
    for n in COUNTS:
        size = getattr(library, f"size_{n}")
        size.restype = ctypes.c_int
        assert size() == 4 * len(grouped_constants(Residues(n)))
