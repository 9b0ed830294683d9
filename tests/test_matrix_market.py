"""MatrixMarket files: each number is right to the bit, or the error says where it stands."""

import gzip
import io
import sys
from fractions import Fraction

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from typer.testing import CliRunner

from ozaki._cli import matrix_market
from ozaki._cli.commands import app
from ozaki._cli.files import read, write
from ozaki._cli.matrix_market import reading
from ozaki._cli.matrix_market.entries import Block

SPARSE = "%%MatrixMarket matrix coordinate real general\n"
DENSE = "%%MatrixMarket matrix array {} {}\n"
HERMITIAN = "%%MatrixMarket matrix coordinate complex hermitian\n"


@pytest.fixture
def from_text(tmp_path):
    """Read a matrix from a file with this text."""

    def reader(text, name="x.mtx"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(str(path))

    return reader


def same_bits(x, y):
    return x.shape == y.shape and (x.view(np.int64) == y.view(np.int64)).all()


# --- numbers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1.5D+02", 150.0),
        ("1.5d2", 150.0),
        ("1.5E2", 150.0),
        ("1.5+2", 150.0),
        ("-1.5-100", -1.5e-100),
        (".5+101", 0.5e101),
        ("+1.5", 1.5),
        ("-0.0", -0.0),
        ("0e-999", 0.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("007", 7.0),
        ("1e22", 1e22),
        ("5e-324", 5e-324),
        ("2.4703282292062328e-324", 5e-324),  # just above half of the smallest
        ("9007199254740993", 2.0**53),  # a tie, to even
        ("9007199254740993.00000000000000000000000000000000001", 2.0**53 + 2),
        ("nan", np.nan),
        ("NaN", np.nan),
        ("Inf", np.inf),
        ("-Infinity", -np.inf),
        ("+INF", np.inf),
    ],
)
@pytest.mark.parametrize("text", [SPARSE + "1 1 1\n1 1 {}\n", DENSE.format("real", "general") + "1 1\n{}\n"])
def test_a_number_is_the_nearest_float64(from_text, text, written, value):
    assert same_bits(from_text(text.format(written)), np.array([[value]]))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("1e400", "'1e400' is too large for float64"),
        ("-9.9d999", "is too large for float64"),
        ("1e-400", "'1e-400' is too small for float64, and would become 0"),
        ("-0.001-999", "is too small for float64"),
        ("1.5q2", "'1.5q2' is not a number"),
        ("1+2", "'1+2' is not a number"),
        ("1_000", "is not a number"),
        ("0x1p3", "is not a number"),
        ("1,5", "is not a number"),
        ("1.5e", "is not a number"),
        ("1.5e+", "is not a number"),
        ("1.#INF", "is not a number"),
        ("nan(7)", "is not a number"),
        (".", "is not a number"),
        ("--1", "is not a number"),
        ("\u0663", "is not a number"),
        ("1\r2", "is not a number"),
        ("1\f", "is not a number"),
        ("9" * 500 + "x", "(501 characters)"),
    ],
)
def test_a_number_that_is_none_or_gets_lost_is_refused_with_its_place(from_text, written, reason):
    with pytest.raises(ValueError, match=r"x\.mtx: line 4, column 6: ") as error:
        from_text(SPARSE + f"2 2 2\n1 1 1\n2 1  {written}\n")
    assert reason in str(error.value) and len(str(error.value)) < 300
    with pytest.raises(ValueError, match=r"x\.mtx: line 3, column 1: ") as error:
        from_text(DENSE.format("real", "general") + f"1 1\n{written}\n")
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [("-3", -3.0), ("+3", 3.0), ("-0", 0.0), (str(2**60), 2.0**60), (str(-(2**53)), -(2.0**53)), ("0" * 5000 + "7", 7)],
)
def test_an_integer_that_float64_holds(from_text, written, value):
    text = DENSE.format("integer", "general") + f"1 1\n{written}\n"
    assert same_bits(from_text(text), np.array([[value]], dtype=np.float64))


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("1e+16", "'1e+16' is not an integer"),
        ("1.0", "is not an integer"),
        ("nan", "is not an integer"),
        (str(2**53 + 1), "'9007199254740993' is an integer that float64 does not hold"),
        (str(-(2**60) - 1), "is an integer that float64 does not hold"),
        ("9" * 5000, "is too large for float64"),
    ],
)
def test_an_integer_that_is_none_or_too_long_is_refused_with_its_place(from_text, written, reason):
    with pytest.raises(ValueError, match=r"x\.mtx: line 4, column 5: ") as error:
        from_text(SPARSE.replace("real", "integer") + f"2 2 2\n1 1 1\n2 1 {written}\n")
    assert reason in str(error.value)


@settings(deadline=None)  # a slow machine may take long for one file
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 30), st.sampled_from("eEdD"))
def test_decimals_of_any_length_round_once(x, digits, letter):
    written = f"{x:.{digits}e}".replace("e", letter)
    value = Fraction(written.replace(letter, "e"))
    file = io.BytesIO((DENSE.format("real", "general") + f"1 1\n{written}\n").encode())
    if (value and abs(value) <= Fraction(5e-324) / 2) or abs(value) >= Fraction(2) ** 1024 - Fraction(2) ** 970:
        with pytest.raises(ValueError, match="for float64"):
            matrix_market.read(file)
        return
    got = Fraction(float(matrix_market.read(file)[0, 0]))
    neighbours = [Fraction(float(np.nextafter(float(got), to))) for to in (-1.7e308, 1.7e308)]
    assert all(abs(got - value) <= abs(other - value) for other in neighbours)


# --- the format --------------------------------------------------------------


def test_comments_blank_lines_and_line_ends(from_text):
    text = "%%MATRIXMARKET Matrix  Coordinate REAL General \n"
    text += "%\n%% a b\n\n  % c\n \t2\t3 2 \n\n% d\n 1 1\t3\n2 3 -4 \n\n% e"
    expected = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, -4.0]])
    assert same_bits(from_text(text), expected)
    assert same_bits(from_text(text.replace("\n", "\r\n")), expected)
    assert same_bits(from_text(gzip.compress(text.encode()), "x.mtx.gz"), expected)
    assert same_bits(from_text(text.encode().replace(b"% d", b"% \xff\xe9")), expected)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_longest_first_line(from_text, end):
    text = "%%MatrixMarket matrix array real general".ljust(1024) + f"{end}1 1{end}7{end}"
    assert same_bits(from_text(text), np.array([[7.0]]))


@pytest.mark.parametrize("sizes", ["array real general\n{} 1\n", "coordinate real general\n{0} 1 {0}\n"])
@pytest.mark.parametrize("end", [b"\r", b"\n\r", b" \r", b"\n\n \t\r", b"\n%\r"])
def test_a_file_that_ends_within_a_line_end(from_text, sizes, end):
    """A line end that the end of the file cuts short adds no entry."""
    start = f"%%MatrixMarket matrix {sizes}"
    entries = ("1 1 7\n2 1 8" if "coordinate" in sizes else "7\n8").encode() + end
    assert same_bits(from_text(start.format(2).encode() + entries), np.array([[7.0], [8.0]]))
    with pytest.raises(ValueError, match=r"x\.mtx: line [4-6]: the file ends after 2 of 3 entries"):
        from_text(start.format(3).encode() + entries)


@pytest.mark.parametrize("kind", ["array", "coordinate"])
@pytest.mark.parametrize("entries", [1, 3])
def test_a_matrix_is_given_out_with_all_its_entries_only(from_text, monkeypatch, kind, entries):
    """A wrong number of entries is an error even if the reader of lines, faked here, has missed it."""
    numbers = np.arange(entries, dtype=np.int64)
    places = (numbers % 2, 0 * numbers) if kind == "coordinate" else (numbers[:0], numbers[:0])
    block = Block(numbers, *places, np.ones(entries))
    monkeypatch.setattr(reading, "read_blocks", lambda *_: iter([block]))
    with pytest.raises(ValueError, match=r"x\.mtx: "):
        from_text(f"%%MatrixMarket matrix {kind} real general\n2 1{' 2' if kind == 'coordinate' else ''}\n")


@pytest.mark.parametrize("sizes", [(2, 2, 2, 3), (3, 2, 2, 2), (2, 1, 2, 2), (2, 1, 1, 2), (2, 0, 2, 2)])
def test_the_parts_of_a_block_are_equally_many(sizes):
    with pytest.raises(ValueError, match=f"{sizes[3]} values in {sizes[0]} lines"):
        Block(*(np.zeros(size, np.int64) for size in sizes[:3]), np.zeros(sizes[3]))


@pytest.mark.parametrize(
    ("kind", "lines", "expected"),
    [
        ("coordinate double general", "2 2 1\n2 1 3\n", [[0, 0], [3, 0]]),
        ("coordinate pattern general", "2 2 2\n2 1\n1 2\n", [[0, 1], [1, 0]]),
        ("coordinate pattern symmetric", "2 2 2\n2 1\n2 2\n", [[0, 1], [1, 1]]),
        ("coordinate unsigned-integer symmetric", "2 2 2\n1 1 7\n2 1 3\n", [[7, 3], [3, 0]]),
        ("coordinate real skew-symmetric", "2 2 2\n2 1 3\n2 2 0\n", [[0, -3], [3, 0]]),
        ("array real general", "2 3\n1\n2\n3\n4\n5\n6\n", [[1, 3, 5], [2, 4, 6]]),
        ("array integer symmetric", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
        ("array real skew-symmetric", "3 3\n1\n2\n3\n", [[0, -1, -2], [1, 0, -3], [2, 3, 0]]),
        ("array real skew-symmetric", "1 1\n", [[0]]),
        ("array real skew-symmetric", "2 2\n0\n", [[0, -0.0], [0, 0]]),
        ("array integer skew-symmetric", "2 2\n0\n", [[0, 0], [0, 0]]),
        ("coordinate integer skew-symmetric", "3 3 2\n2 1 -0\n3 1 4\n", [[0, 0, -4], [0, 0, 0], [4, 0, 0]]),
        ("array unsigned-integer general", "2 1\n+3\n0\n", [[3], [0]]),
        ("coordinate real general", "0 5 0\n", np.zeros((0, 5))),
        ("array real general", "5 0\n", np.zeros((5, 0))),
        ("array real skew-symmetric", "0 0\n", np.zeros((0, 0))),
        # Of real numbers hermitian is symmetric.
        ("array real hermitian", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
        ("array double hermitian", "2 2\n-0.0\n2\n3\n", [[-0.0, 2], [2, 3]]),
        ("array integer hermitian", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
        ("coordinate real hermitian", "2 2 2\n2 1 .5\n2 2 5\n", [[0, 0.5], [0.5, 5]]),
        ("coordinate integer Hermitian", "2 2 1\n2 1 7\n", [[0, 7], [7, 0]]),
        ("coordinate unsigned-integer hermitian", "2 2 1\n2 1 7\n", [[0, 7], [7, 0]]),
        ("coordinate pattern hermitian", "2 2 2\n2 1\n2 2\n", [[0, 1], [1, 1]]),
        ("coordinate real hermitian", "3 3 0\n", np.zeros((3, 3))),
        # Words behind the kind mean nothing, as for SciPy and NIST's own reader.
        ("array real general of my own", "1 1\n7\n", [[7]]),
        ("array real general % comment", "1 1\n7\n", [[7]]),
        ("coordinate integer symmetric symmetric\t\r", "2 2 1\n2 1 7\n", [[0, 7], [7, 0]]),
    ],
)
def test_kinds_of_matrices(from_text, kind, lines, expected):
    assert same_bits(from_text(f"%%MatrixMarket matrix {kind}\n{lines}"), np.array(expected, dtype=np.float64))


COMPLEX = [
    ("coordinate complex general", "2 2 2\n2 1 3 -1.5d+1\n1 2 .5 0\n", [[0, 0.5], [3 - 15j, 0]]),
    ("coordinate complex symmetric", "2 2 2\n2 1 3 4\n2 2 5 6\n", [[0, 3 + 4j], [3 + 4j, 5 + 6j]]),
    ("coordinate complex skew-symmetric", "2 2 2\n2 1 3 4\n2 2 0 0\n", [[0, -3 - 4j], [3 + 4j, 0]]),
    ("coordinate complex hermitian", "2 2 2\n2 1 3 4\n2 2 5 0\n", [[0, 3 - 4j], [3 + 4j, 5]]),
    ("array complex general", "2 1\n1 2\n3 4\n", [[1 + 2j], [3 + 4j]]),
    ("array complex symmetric", "2 2\n1 2\n3 4\n5 6\n", [[1 + 2j, 3 + 4j], [3 + 4j, 5 + 6j]]),
    ("array complex skew-symmetric", "2 2\n1 2\n", [[0, -1 - 2j], [1 + 2j, 0]]),
    ("array complex hermitian", "2 2\n1 0\n3 4\n5 -0.0\n", [[1, 3 - 4j], [3 + 4j, 5]]),
    ("coordinate complex general", "2 3 0\n", np.zeros((2, 3))),
    ("array complex hermitian", "0 0\n", np.zeros((0, 0))),
]


@pytest.mark.parametrize(("kind", "lines", "expected"), COMPLEX)
def test_kinds_of_complex_matrices(from_text, kind, lines, expected):
    text = f"%%MatrixMarket matrix {kind}\n{lines}"
    found = from_text(text)
    assert found.dtype == np.complex128 and np.array_equal(found, np.reshape(expected, found.shape))
    if found.size and "d+" not in text:  # SciPy reads no exponents of Fortran
        read_by_scipy = scipy.io.mmread(io.BytesIO(text.encode()))
        assert np.array_equal(read_by_scipy.toarray() if "coordinate" in kind else read_by_scipy, found)


@pytest.mark.parametrize("text", [SPARSE + "1 1 1\n1 1 {}\n", DENSE.format("real", "general") + "1 1\n{}\n"])
@pytest.mark.parametrize("part", ["-0.0", "nan", "-Inf", "9007199254740993"])
def test_the_parts_of_a_complex_number_are_read_by_themselves(from_text, text, part):
    value = float(part)
    for written, parts in ((f"0 {part}", [0.0, value]), (f"{part} -0.0", [value, -0.0])):
        found = from_text(text.replace("real", "complex").format(written))
        assert same_bits(found, np.array([parts]).view(np.complex128))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1, column 1: expected a first line %%MatrixMarket matrix FORMAT FIELD SYMMETRY"),
        ("1 2 3\n", "line 1, column 1: expected a first line"),
        ("%%MatrixMarket matrix coordinate real\n", "line 1, column 38: expected %%MatrixMarket"),
        (
            "%%MatrixMarket matrix array real general".ljust(1025) + "\n1 1\n7\n",
            "line 1: is longer than 1024 char",
        ),
        (
            "%%MatrixMarket matrix".ljust(1050) + "array real general\n1 1\n7\n",
            "line 1: is longer than 1024 char",
        ),
        ("%%MatrixMarket matrix array real general".ljust(1024) + "%\n1 1\n7\n", "line 1: is longer than 1024"),
        ("%%MatrixMarket vector array real general\n", "line 1, column 16: 'vector' is not known; expected matrix"),
        (DENSE.format("quaternion", "general"), "line 1, column 29: 'quaternion' is not known; expected real"),
        (DENSE.format("real", "hermitian") + "2 3\n", "line 2, column 1: a symmetric matrix is square, not 2 x 3"),
        ("\ufeff" + SPARSE + "2 2 1\n1 1 x\n", "line 3, column 5: 'x' is not a number"),
        ("\ufeff%%MatrixMarket matrix array foo general", "line 1, column 29: 'foo' is not known"),
        ("\ufeff\ufeff" + SPARSE, "line 1, column 1: expected a first line"),
        ((SPARSE + "1 1 0\n").encode("utf-16"), "line 1: is text in UTF-16 or UTF-32; save it in UTF-8"),
        ((SPARSE + "1 1 0\n").encode("utf-32"), "line 1: is text in UTF-16 or UTF-32; save it in UTF-8"),
        (b"\xfe\xff" + SPARSE.encode("utf-16-be"), "line 1: is text in UTF-16 or UTF-32; save it in UTF-8"),
        (DENSE.format("pattern", "general"), "line 1, column 29: a pattern has no values"),
        (SPARSE.replace("real general", "pattern skew-symmetric"), "line 1, column 34: a pattern has no values"),
        (SPARSE + "%\n\n", "line 3: the file ends before the sizes"),
        (SPARSE + "2 2\n", "line 2, column 4: expected the sizes ROWS COLUMNS ENTRIES"),
        (SPARSE + "2 -2 1\n", "line 2, column 3: expected the sizes ROWS COLUMNS ENTRIES, COLUMNS as"),
        (SPARSE + "2 2 1 1\n", "line 2, column 7: expected the sizes"),
        (SPARSE + "1e3 2 1\n", "line 2, column 1: expected the sizes"),
        (SPARSE + "2 2 5\n", "line 2, column 5: 5 entries; a general 2 x 2 matrix has 4 at most"),
        (
            SPARSE.replace("general", "symmetric") + "2 3 1\n",
            "line 2, column 1: a symmetric matrix is square, not 2 x 3",
        ),
        (SPARSE + "2 2 2\n1 1 1\n\n% 2 2 2\n", "line 5: the file ends after 1 of 2 entries"),
        (SPARSE + "2 2 1\n1 1 1\n\n2 2 1\n", "line 5, column 1: expected 1 entries; here is one more"),
        (SPARSE + "2 2 0\n2 2 1\n", "line 3, column 1: expected 0 entries; here is one more"),
        (SPARSE + "2 2 1\n1 1 1 2\n", "line 3, column 7: '2' is too much; an entry is a row, a column, a number"),
        (SPARSE + "2 2 1\n1 1 1 % a\n", "line 3, column 7: '%' is too much"),
        (SPARSE + "2 2 1\n1 1\n", "line 3, column 4: a number is missing; an entry is a row, a column, a number"),
        (SPARSE + "2 2 1\n0 1 1\n", "line 3, column 1: there is no row 0; expected 1 to 2"),
        (SPARSE + "2 2 1\n1 3 1\n", "line 3, column 3: there is no column 3; expected 1 to 2"),
        (SPARSE + f"2 2 1\n1 {'9' * 30} 1\n", "line 3, column 3: '999999999999999999999999999999' is not a column"),
        (SPARSE + "2 2 1\n1.0 1 1\n", "line 3, column 1: '1.0' is not a row"),
        (SPARSE + "2 2 3\n1 2 1\n2 1 1\n%\n1 2 1\n", "line 6: entry (1, 2) is in line 3 already"),
        (SPARSE.replace("real", "pattern") + "2 2 1\n1 1 1\n", "line 3, column 5: '1' is too much"),
        (SPARSE.replace("general", "symmetric") + "2 2 1\n1 2 1\n", "line 3, column 1: this entry lies above the diag"),
        (SPARSE.replace("general", "skew-symmetric") + "2 2 1\n2 2 1\n", "line 3: 1.0 on the diagonal; expected 0"),
        (
            DENSE.format("real", "general") + "2 2\n1 2\n3 4\n",
            "line 3, column 3: '2' is too much; an entry is a number",
        ),
        (DENSE.format("unsigned-integer", "general") + "1 1\n-3\n", "line 3, column 1: '-3' is not an integer without"),
        (DENSE.format("unsigned-integer", "general") + "1 1\n3.0\n", "line 3, column 1: '3.0' is not an integer with"),
        (DENSE.format("real", "general") + "2 2\n1\n2\n3\n", "line 5: the file ends after 3 of 4 entries"),
        (DENSE.format("real", "symmetric") + "2 2\n1\n2\n3\n4\n", "line 6, column 1: expected 3 entries"),
        (DENSE.format("pattern", "hermitian"), "line 1, column 29: a pattern has no values"),
        (
            DENSE.format("complex", "general") + "1 1\n1\n",
            "line 3, column 2: an imaginary part is missing; an entry is",
        ),
        (DENSE.format("complex", "general") + "1 1\n1+2j\n", "line 3, column 1: '1+2j' is not a real part"),
        (DENSE.format("complex", "general") + "1 1\n1 2 3\n", "line 3, column 5: '3' is too much; an entry is a real"),
        (DENSE.format("complex", "hermitian") + "2 3\n", "line 2, column 1: a hermitian matrix is square, not 2 x 3"),
        (DENSE.format("complex", "hermitian") + "2 2\n1 0\n2 3\n", "line 4: the file ends after 2 of 3 entries"),
        (HERMITIAN + "2 2 4\n", "line 2, column 5: 4 entries; a hermitian 2 x 2 matrix has 3 at most"),
        (HERMITIAN + "2 2 1\n1 2 3 4\n", "line 3, column 1: this entry lies above the diagonal"),
        (HERMITIAN + "2 2 1\n2 1 3 x\n", "line 3, column 7: 'x' is not an imaginary part"),
        (HERMITIAN + "2 2 1\n2 1 1e999 0\n", "line 3, column 5: '1e999' is too large for float64"),
        (HERMITIAN + "2 2 1\n2 1 0 1e-999\n", "line 3, column 7: '1e-999' is too small for float64"),
        (
            HERMITIAN + "2 2 2\n2 1 3 4\n% 2 2\n2 2 3 4\n",
            "line 5: (3+4j) on the diagonal; expected an imaginary part of 0 in a hermitian matrix",
        ),
        (HERMITIAN + "2 2 1\n1 1 3 nan\n", "line 3: (3+nanj) on the diagonal; expected an imaginary part of 0"),
        (
            DENSE.format("complex", "hermitian") + "3 3\n1 0\n2 3\n4 5\n\n6 -0.0\n7 8\n9 1\n",
            "line 9: (9+1j) on the diagonal; expected an imaginary part of 0 in a hermitian matrix",
        ),
        (
            HERMITIAN.replace("hermitian", "skew-symmetric") + "2 2 1\n2 2 0 1\n",
            "line 3: 1j on the diagonal; expected 0 in a skew-symmetric matrix",
        ),
    ],
)
def test_a_file_that_is_not_to_the_format_is_refused_with_the_place(from_text, text, reason):
    with pytest.raises(ValueError, match=r"x\.mtx: line") as error:
        from_text(text)
    assert reason in str(error.value)


def test_places_are_right_far_behind_in_a_file(from_text):
    """An entry far behind the first block: files are read in blocks of some megabytes."""
    lines = [f"{i // 1000 + 1} {i % 1000 + 1} 0.{i:040}" for i in range(200_000)]
    lines.insert(100_000, "% comment")
    text = SPARSE + "1000 1000 {}\n" + "\n".join(lines)
    assert len(text) > 8e6
    assert from_text(text.format(200_000))[199, 999] == float(f"0.{199_999:040}")
    with pytest.raises(ValueError, match=r"line 200004, column 9: 'x' is not a number"):
        from_text(text.format(200_001) + "\n900 900 x\n")
    with pytest.raises(ValueError, match=r"line 200004: entry \(2, 1\) is in line 1003 already"):
        from_text(text.format(200_001) + "\n2 1 7\n")
    with pytest.raises(ValueError, match=r"line 200003, column 1: expected 199999 entries"):
        from_text(text.format(199_999))


@pytest.mark.parametrize(
    "kind",
    ["coordinate real general", "coordinate integer symmetric", "array real general", "array complex hermitian"],
)
def test_a_matrix_larger_than_the_memory_is_refused_before_it_is_allocated(from_text, kind):
    sizes = f"1000000000 1000000000 {'1' if 'coordinate' in kind else ''}\n"
    with pytest.raises(
        MemoryError, match=r"x\.mtx: line 2: a matrix of 1000000000 x 1000000000 (float64|complex128) elements takes"
    ):
        from_text(f"%%MatrixMarket matrix {kind}\n{sizes}1 1 1\n")


@pytest.mark.parametrize(
    "content", [b"", b"text", gzip.compress(b"%%MatrixMarket", mtime=0)[:-3], b"\x1f\x8b" + bytes(40)]
)
def test_a_damaged_compressed_file_is_named(from_text, content):
    with pytest.raises((OSError, ValueError), match=r"x\.mtx\.gz: "):
        from_text(content, "x.mtx.gz")


# --- beside SciPy ------------------------------------------------------------

MATRICES = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.complex128, np.complex64]),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=5),
    elements={"allow_nan": False},
)


@settings(deadline=None)  # a slow machine may take long for one file
@given(MATRICES)
def test_scipy_reads_what_is_written(x):
    """SciPy reads the values that were written, except for signs of zeros, which it drops."""
    file = io.BytesIO()
    matrix_market.write(file, x)
    assert np.array_equal(scipy.io.mmread(io.BytesIO(file.getvalue())), x)
    back = np.ascontiguousarray(matrix_market.read(io.BytesIO(file.getvalue())))
    assert same_bits(back, x.astype(np.result_type(x, np.float64)))


@settings(deadline=None)  # a slow machine may take long for one file
@given(MATRICES, st.sampled_from(["general", "symmetric", "skew-symmetric", "hermitian"]), st.booleans())
def test_what_scipy_writes_is_read(x, symmetry, sparse):
    x = x.astype(np.complex128 if symmetry == "hermitian" else np.result_type(x, np.float64))
    if symmetry != "general":
        lower = np.tril(x[: min(x.shape), : min(x.shape)], -1)
        upper = {"symmetric": lower, "skew-symmetric": -lower, "hermitian": lower.conj()}[symmetry].T
        x = np.where(np.tri(len(lower), k=-1, dtype=bool), lower, upper)
    file = io.BytesIO()
    scipy.io.mmwrite(file, scipy.sparse.coo_array(x) if sparse else x, symmetry=symmetry, precision=17)
    assert np.array_equal(matrix_market.read(io.BytesIO(file.getvalue())), x)


@settings(deadline=None)  # a slow machine may take long for one file
@given(
    hnp.arrays(
        st.sampled_from([np.int8, np.uint16, np.int64, np.uint64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=4),
        elements=st.integers(0, 100),
    ),
    st.booleans(),
)
def test_integers_that_scipy_writes_are_read(x, sparse):
    file = io.BytesIO()
    scipy.io.mmwrite(file, scipy.sparse.coo_array(x) if sparse else x)
    assert np.array_equal(matrix_market.read(io.BytesIO(file.getvalue())), x.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("sparse", [False, True])
def test_real_matrices_that_scipy_calls_hermitian_are_read(dtype, sparse):
    x = np.array([[1, 2, 0], [2, 3, -4], [0, -4, 0]], dtype)
    file = io.BytesIO()
    scipy.io.mmwrite(file, scipy.sparse.coo_array(x) if sparse else x, symmetry="hermitian")
    assert b"hermitian" in file.getvalue()
    found = matrix_market.read(io.BytesIO(file.getvalue()), integers=True)
    assert np.array_equal(found, x) and found.dtype == (np.int64 if np.issubdtype(dtype, np.integer) else np.float64)


@pytest.mark.parametrize("name", ["x.mtx", "x.mtx.gz"])
def test_a_byte_order_mark_is_left_out(from_text, name):
    text = b"\xef\xbb\xbf" + ("%%MatrixMarket matrix array real general".ljust(1024) + "\n1 1\n7\n").encode()
    assert from_text(gzip.compress(text) if name.endswith("gz") else text, name).tolist() == [[7.0]]


def test_nan_and_inf_go_and_come_back():
    x = np.array([[np.nan, np.inf, -np.inf, -0.0]])
    file = io.BytesIO()
    matrix_market.write(file, x)
    back = matrix_market.read(io.BytesIO(file.getvalue()))
    assert np.array_equal(back, x, equal_nan=True) and np.signbit(back[0, 3])
    assert np.array_equal(scipy.io.mmread(io.BytesIO(file.getvalue())), x, equal_nan=True)


# --- through the command line ------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0), (1, 1)])
@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_any_shape_goes_and_comes_back(tmp_path, shape, suffix, dtype):
    path = str(tmp_path / f"x{suffix}")
    x = np.random.default_rng(0).standard_normal((*shape, 2)).view(complex)[..., 0]
    x = x.copy() if dtype is complex else x.real.copy()
    write(path, x)
    assert same_bits(np.ascontiguousarray(read(path)), x)
    once = (tmp_path / f"x{suffix}").read_bytes()
    write(path, x)
    assert (tmp_path / f"x{suffix}").read_bytes() == once


def test_scipy_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    (tmp_path / "x.mtx").write_text(SPARSE + "2 2 2\n1 1 1.5D+02\n2 2 1\n", encoding="ascii")
    words = [str(tmp_path / name) for name in ("x.mtx", "x.mtx", "c.mtx")]
    done = CliRunner().invoke(app, ["multiply", *words[:2], "-o", words[2]])
    assert done.exit_code == 0, done.output
    assert np.array_equal(read(words[2]), [[22500.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize("command", ["multiply", "verify", "plan"])
def test_each_command_names_file_line_and_column(tmp_path, command):
    (tmp_path / "x.mtx").write_text(SPARSE + "2 2 1\n1 1 1.5x\n", encoding="ascii")
    words = [
        command,
        *[str(tmp_path / "x.mtx")] * 2,
        *(["-o", str(tmp_path / "c.npy")] if command == "multiply" else []),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert done.stderr.endswith("x.mtx: line 3, column 5: '1.5x' is not a number\n") and done.stderr.count("\n") == 1
