"""Every kernel compiles for every architecture, within limits of registers and spilled bytes. Needs no GPU."""

import io
import pathlib
import re

import pytest

from benchmarks import tensor_cores
from ozaki.backends.cupy import devices
from ozaki.backends.cupy.program.arrays import DTYPES, View
from ozaki.backends.cupy.steps import stacks
from ozaki.backends.cupy.steps.engines import thin_residues
from ozaki.schemes import ComplexResidues, Digits, Residues
from ozaki.schemes.folded import folded

core = pytest.importorskip("cuda.core", reason="cuda-core and NVRTC are needed to compile the kernels")

KERNELS = pathlib.Path(__file__).parents[1] / "kernels"
OTHER_ARCHITECTURES = ["sm_75", "sm_80", "sm_100", "sm_120"]

# The most registers of a thread, by kernel; a multiprocessor has 65536, enough for 1024 threads with 64 each.
REGISTERS = {
    "halves": 32,
    "describe": 128,
    "describe_finish": 80,
    "split": 128,
    "describe_split": 128,
    "reduce": 64,
    **dict.fromkeys(("count_leading_zeros", "count_trailing_zeros", "take_window", "add_window"), 40),
    **dict.fromkeys(("settle", "round_at", "to_double"), 40),
    "sum_parts": 64,
    "add_residues_of_parts": 80,
    **dict.fromkeys(("extremes_of_parts", "sums_of_parts"), 80),
    "collect": 40,
    "axpby": 40,
    "copy": 40,
    "mirror": 40,
    "split_fp16": 64,
    "inner_products": 80,  # three blocks of 256 threads
    "row_digits": 64,
    **dict.fromkeys(("narrow", "combine_rows"), 40),
    "recombine": 80,
    "recombine_complex": 128,  # two blocks of 256 threads
    "recombine_quadrants": 168,  # 14 residues: 128, four blocks of 128 threads
    "magnitudes": 64,
    "worst_ratio": 128,
    "worst_ratio_wide": 64,
    "lower_by_exponents": 80,  # three blocks
    "error_terms": 40,
    "unit_terms": 40,
    "stack_facts": 64,  # a multiprocessor has 1024 threads
    "proof_gemm": 168,
    "residue_gemm": 168,  # at entry; its warpgroups trade registers among themselves
    "thin_gemm": 128,  # at entry; its warpgroups trade registers among themselves
    "digit_gemm": 168,
    "few_rows": 192,  # which leave a multiprocessor room for a block of row_digits
    "diagonal_gemm": 168,
    "digit_far": 128,
    "split_quadrants": 240,  # two blocks of 128 threads
    "patch": 80,
    "split_words": 64,
    "tops_split_words": 128,
    "count_underflows": 64,
    "tops": 80,
    "sample": 128,  # two blocks of 256 threads
    "overlap": 128,
    "crossings": 224,  # one block of 256 threads
    **dict.fromkeys(("exponents", "factors", "own", "beside"), 64),
    "word_mma": 255,
    "word_gemm": 168,
    "word_pairs": 168,
    "row_tops": 40,
    "leading": 64,
    "row_bottoms": 40,
    "split_numbers": 168,
    "combine_digits": 64,
    "recombine_numbers": 168,
    "worst_quotient": 64,
    "row_terms": 48,
    "entry_bounds": 64,
    "project": 96,
    "stack": 255,  # as many as its blocks leave
    **dict.fromkeys(("random_vector", "reduce_sums", "check_exponents", "verify_sums", "flip"), 40),
}
# Limits that replace those above for kernels of more than four limbs, of int64 diagonals, or (FEW) with so much shared
# memory that a multiprocessor has room for three blocks of 128 threads only.
WIDE_REGISTERS = {"split": 168, "recombine": 128, "recombine_complex": 192, "describe_split": 168}
# Those of kernels that round alpha A B + beta C: two blocks of 256 threads, one of more than four limbs.
COMBINED_REGISTERS = {
    "recombine": (128, 168),
    "recombine_quadrants": (168, 168),
    "patch": (80, 80),
    "combine_rows": (64, 64),
}
# The most residues of which kernels that recombine them to products have no more than 80, by their macros: three blocks
# of 256 threads. They have 128 of more.
FEW_RESIDUES = {(): 22, ("PROJECTED",): 22, ("UNDECIDED",): 21, ("PROJECTED", "UNDECIDED"): 0}

# The most bytes of local memory of a thread, by kernel. Kernels that multiply keep what they know of a tile there while
# all registers hold accumulators; the loop over k touches none of it. `proof_gemm` keeps the entries in doubt, 128
# bytes; those that split keep what is not needed for each slice, so that one block more fits a multiprocessor, and that
# of stacks what is not needed for each entry; the others keep a few numbers, which NVRTC 13.5 has registers for.
FRAME = {
    "digit_gemm": 56, "diagonal_gemm": 40, "word_gemm": 24, "word_pairs": 24, "proof_gemm": 144,
    "split": 24, "row_digits": 24,
    "describe_split": 24,
    "worst_ratio": 24, "lower_by_exponents": 8, "split_numbers": 64,
    "inner_products": 40, "stack": 336, "stack_facts": 48, "thin_gemm": 96,
}  # fmt: skip
# The most bytes that all instructions of a kernel store into that memory and load from it ("spills").
SPILLED = {
    "digit_gemm": 180, "diagonal_gemm": 64, "word_gemm": 64, "word_pairs": 92, "proof_gemm": 40,
    "split": 68, "row_digits": 72,
    "describe_split": 48,
    "worst_ratio": 16, "lower_by_exponents": 40, "split_numbers": 160,
    "inner_products": 164, "stack": 664, "stack_facts": 236, "thin_gemm": 248,
}  # fmt: skip


# What the kernels of complex elements may have of both, in place of that.
COMPLEX_FRAME = {"split": 64, "patch": 16, "stack_facts": 88}
COMPLEX_SPILLED = {"split": 132, "patch": 28, "stack_facts": 320}
# What some kernels may have more: of rows that are scaled along k, with their factors; while they project; while they
# list undecided entries, of 17 residues or of quadrants that are projected, too; of a triangle (sm_120).
MORE_FRAME = {
    ("magnitudes", "INNER"): 24, ("recombine", "PROJECTED"): 16, ("recombine", "UNDECIDED"): 24,
    ("recombine", "LOWER"): 8, ("recombine_quadrants", "UNDECIDED"): 56,
    ("digit_gemm", "FORMAT"): 160, ("inner_products", "WHOLE_ROWS"): 16,
    ("digit_gemm", "ADDEND"): 64,
    ("inner_products", "ADDEND"): 64,
}  # fmt: skip
MORE_SPILLED = {
    ("magnitudes", "INNER"): 84, ("split_numbers", "INNER"): 40, ("recombine", "PROJECTED"): 32,
    ("recombine", "UNDECIDED"): 56, ("recombine", "LOWER"): 16, ("recombine_quadrants", "UNDECIDED"): 112,
    ("digit_gemm", "FORMAT"): 800, ("digit_gemm", "ADDEND"): 1400, ("inner_products", "ADDEND"): 200,
}  # fmt: skip


def more_of(more, name, macros):
    """The bytes of local memory beyond those of the kernel's plain form."""
    return sum(more.get((name, macro), 0) for macro, value in macros.items() if value)


def put_aside(macros):
    """Bytes of local memory for the totals of word_pairs, which it keeps there while it adds blocks."""
    of_number = {"float": 4, "double": 8}
    return macros["TILE_COLS"] // 2 * of_number[macros["PROMOTION"]] if macros.get("TOTALS") else 0


def describe(dtype, along_k, reals=1):
    return "conversion/describe.cu", {"INPUT": dtype, "REALS": reals, "ALONG_K": along_k}


def split(dtype, slices, limbs, digit_bits, along_k, reversed_=0, tile=0, reals=1):
    room = slices if digit_bits == 7 else -(-slices // 8) * 8
    macros = {"INPUT": dtype, "REALS": reals, "ROOM": room, "LIMBS": limbs, "DIGIT_BITS": digit_bits}
    neighbours = (4 if digit_bits else 16) * (tile == 192)
    macros |= {"ALONG_K": along_k, "REVERSED": reversed_, "TILE": tile, "NEIGHBOURS": neighbours}
    return "conversion/split.cu", macros | {"LARGEST": int(digit_bits == 8)}


def describe_split(dtype, slices, limbs, digit_bits, along_k, reversed_, tile, sums, rows, sharing=4, few=0, cluster=2):
    macros = split(dtype, slices, limbs, digit_bits, along_k, reversed_, tile)[1]
    del macros["LARGEST"]
    macros |= {"SUMS": sums, "CLUSTER": 1 if along_k or sharing == 1 else cluster, "HELD": rows, "SHARING": sharing}
    macros |= {"FEW": few} | ({"RIGHT": int(tile == 192)} if sums else {})
    return "sm_90a", "conversion/describe_split_sm90.cu", macros


def split_quadrants(dtype, slices, limbs, along_k, tile):
    macros = split(dtype, slices, limbs, 0, along_k, 0, tile)[1]
    del macros["LARGEST"]
    return "sm_90a", "conversion/split_quadrants.cu", macros


def split_numbers(dtype, groups, along_k, unsigned=0, tile=0, short=4):
    macros = {"MULTIPRECISION": int(dtype is None), "GROUPS": groups, "ALONG_K": along_k, "UNSIGNED": unsigned}
    macros["SHORT"] = short
    macros |= {"TILE": tile, "NEIGHBOURS": 16 * (tile == 192)} | ({} if dtype is None else {"INPUT": dtype})
    return "conversion/split_numbers.cu", macros


def recombine_numbers(dtype, groups):
    macros = {"MULTIPRECISION": int(dtype is None), "GROUPS": groups} | ({} if dtype is None else {"OUTPUT": dtype})
    return "conversion/recombine_numbers.cu", macros


def split_fp16(dtype, slices, limbs, digit_bits, along_k, reversed_=0):
    macros = split(dtype, slices, limbs, digit_bits, along_k, reversed_)[1]
    del macros["ROOM"]
    return "conversion/split_fp16.cu", macros | {"SLICES": slices}


def recombine(dtype, slices, limbs, digit_bits, sum64=0, lower=0):
    together = 2 if digit_bits == 0 and limbs <= 4 else 1
    macros = {"OUTPUT": dtype, "SLICES": slices, "DIGIT_BITS": digit_bits, "LIMBS": limbs, "SUM64": sum64}
    return "conversion/recombine.cu", macros | {"TOGETHER": together, "LOWER": lower}


def projected(case):
    """The same kernel, which also projects; of recombine.cu a thread has one row then."""
    *before, file, macros = case
    together = {"TOGETHER": 1} if "TOGETHER" in macros else {}
    return *before, file, macros | together | {"PROJECTED": 1}


def crossings(a, b, inner=0):
    return "proof/crossings.cu", {"INPUT_A": a, "INPUT_B": b, "INNER": inner}


def listing(case):
    """The same kernel, which also lists undecided entries; of recombine.cu a thread has one row then."""
    *before, file, macros = case
    together = {"TOGETHER": 1} if "TOGETHER" in macros else {}
    return *before, file, macros | together | {"UNDECIDED": 1}


def inner_products(a, b, c):
    return "conversion/inner_products.cu", {"INPUT_A": a, "INPUT_B": b, "OUTPUT": c}


def project(dtype, limbs, along_q, of_summed, inner=0):
    macros = {"INPUT": dtype, "LIMBS": limbs, "ALONG_Q": along_q, "OF_SUMMED": of_summed, "INNER": inner}
    return "conversion/project.cu", macros


def recombine_complex(dtype, moduli, pairs, limbs):
    macros = {"OUTPUT": dtype, "MODULI": moduli, "ROOTED": pairs, "LIMBS": limbs, "LOWER": 0}
    return "conversion/recombine_complex.cu", macros


def combined(case, addend="double"):
    """The case of a kernel for alpha A B + beta C; a thread then has one row."""
    *arch, file, macros = case
    return *arch, file, macros | {"ADDEND": addend} | ({"TOGETHER": 1} if "TOGETHER" in macros else {})


def magnitudes(a, b, along_k_a, along_k_b, magnitude="int8_t", tiles=(0, 0), largest=0, reals=1):
    macros = {
        "REALS": reals,
        "INPUT_A": a,
        "INPUT_B": b,
        "ALONG_K_A": along_k_a,
        "ALONG_K_B": along_k_b,
        "MAGNITUDE": magnitude,
    }
    return "proof/proof.cu", macros | {
        "TILE_A": tiles[0],
        "TILE_B": tiles[1],
        "LARGEST_A": largest,
        "LARGEST_B": largest,
    }


def sample(left, right, whole, reals=1):
    return "proof/sample.cu", {
        "INPUT": "float",
        "REALS": reals,
        "LEFT_ALONG_K": left,
        "RIGHT_ALONG_K": right,
        "WHOLE": whole,
        "MOST": 384,
    }


def overlap(left, right, segments, reals=1):
    return "proof/overlap.cu", {"REALS": reals, "INPUT_A": left, "INPUT_B": right, "SEGMENTS": segments}


def stack_facts(dtype, along_a, along_b, threads, reals=1):
    macros = {"INPUT": dtype, "REALS": reals, "ALONG_A": along_a, "ALONG_B": along_b, "THREADS": threads}
    return "proof/stack_facts.cu", macros | {"UNITS": 2, "BLOCKS": 1024 // threads}


def thin_gemm(dtype, slices, steps, rounded=1):
    ring, of = thin_residues.Ring.of(slices, 32 * steps), folded(Residues(slices), 32 * steps)
    macros = {
        "ROUNDED": rounded,
        "SLICES": slices,
        "STEPS": steps,
        "RESIDENT": int(ring.resident),
        "STAGES": ring.stages,
    }
    if rounded:
        places = "{" + ",".join(map(str, of.places)) + "}"
        macros |= {"OUTPUT": dtype, "PLACE_COUNT": len(of.places), "PLACES": places, "SMALL": int(of.small)}
    return "sm_90a", "products/thin_gemm_sm90.cu", macros


def digit_gemm(dtype, slices, digit_bits):
    name = "products/digit_gemm_sm90.cu" if slices <= 3 else "products/diagonal_gemm_sm90.cu"
    return "sm_90a", name, {"OUTPUT": dtype, "SLICES": slices, "DIGIT_BITS": digit_bits}


def split_words(word, conversion, count, scale_bits, along_k, tile=0, together=1):
    macros = {"WORD": word, "CONVERSION": conversion, "WORD_COUNT": count, "SCALE_BITS": scale_bits, "ALONG_K": along_k}
    macros |= {"TILE": tile, "TOGETHER": together}
    return "words/split_words.cu", macros | {"NEIGHBOURS": 4 * (tile > 128), "LARGEST": int(tile > 0)}


def tops_split_words(rows, cluster, warps, *case):
    macros = split_words(*case)[1]
    del macros["LARGEST"]
    macros |= {"CLUSTER": cluster, "WARPS": warps, "HELD": rows}
    return "sm_90a", "words/tops_split_words_sm90.cu", macros


def stack(scheme, n, char="d", k=None):
    device, k = devices.of("90", multiprocessors=132, shared_memory=233472), k or n
    view, out = (View(DTYPES[char], (4096, n, x), (n * x, x, 1)) for x in (k, n))
    kernel = stacks.kernel_of(device, scheme, view, view, out)
    return kernel.file, kernel.macros


def hoppers_stack(*case):
    """The kernel of stacks by wgmma."""
    file, macros = stack(*case)
    assert macros["WARPGROUPS"]
    return "sm_90a", file, macros


ONE_PRODUCT = "{1,4,{0},{0},{1},{1},{0},{0}}"
BY_BLOCKS = "{1,4,{1,0,0},{0,1,0},{2,3},{2},{0,11},{0}}"  # halfhalf
OF_ALL_K = "{1,0,{1,1,0,0},{1,0,1,0},{4},{1},{0},{0}}"  # markidis
SEVERAL = "{3,8,{1,0,0},{0,1,0},{1,2,3},{1,2,3},{0,0,0},{0,0,0}}"  # fabsum-v1


def word_mma(word, program, half_sums=0, promotion="float", tile=(4, 64, 32), held=4):
    macros = {"WORD": word, "WORD_COUNT": 1 if program is ONE_PRODUCT else 2, "HALF_SUMS": half_sums}
    macros |= {"PROMOTION": promotion, "PROGRAM": program, "HELD": held}
    return "words/word_mma.cu", macros | dict(zip(("WARPS", "WARP_ROWS", "WARP_COLS"), tile, strict=True))


def word_gemm(half_sums, word, scale_bits, columns, stages=5):
    macros = {"HALF_SUMS": half_sums, "WORD": word, "SCALE_BITS": scale_bits}
    return "sm_90a", "words/word_gemm_sm90.cu", macros | {"TILE_COLS": columns, "TILE_STAGES": stages}


def word_pairs(word, totals, promotion, columns, stages=5):
    macros = {"WORD": word, "TOTALS": totals, "PROMOTION": promotion}
    return "sm_90a", "words/word_pairs_sm90.cu", macros | {"TILE_COLS": columns, "TILE_STAGES": stages}


def lower_by_exponents(a, b, reals=1):
    return "proof/proof_exponents.cu", {"INPUT_A": a, "INPUT_B": b, "REALS": reals}


def scaled(case, reals=1):
    """The case with rows that are scaled along k."""
    file, macros = case
    return file, macros | {"INNER": reals}


def patch(a, b, c, reals=1):
    return "conversion/nonfinite.cu", {"REALS": reals, "INPUT_A": a, "INPUT_B": b, "OUTPUT": c}


SIXTEEN = {"BFloat16": (2, 3, 2), "Float16": (3, 4, 3)}


def row_digits(half, columns, tile=0, held=1, compacted=0, counted=1, threads=128):
    few, most, of_columns = SIXTEEN[half]
    digits = {"FEWEST_DIGITS": few, "MOST_DIGITS": most, "OF_COLUMNS": of_columns, "THREADS": threads}
    where = {"REVERSED": columns, "TILE": tile, "NEIGHBOURS": 8 if columns and tile else 0, "HELD": held}
    where |= {"COMPACTED": compacted, "COUNTED": counted}
    return "conversion/row_digits.cu", {"FORMAT": half, "COLUMNS": columns} | digits | where


def few_rows(half, digits, rows, cluster, stages):
    macros = dict(zip(("FEWEST_DIGITS", "MOST_DIGITS", "OF_COLUMNS"), digits, strict=True))
    macros |= {"PADDED_ROWS": rows, "CLUSTER": cluster, "RING_STAGES": stages}
    return "sm_90a", "products/few_rows_sm90.cu", {"FORMAT": half} | macros


def of_rows(half):
    """Kernels that multiply and finish rows of 16-bit floats."""
    formats = {"INPUT_A": half, "INPUT_B": half, "OUTPUT": half}
    return [
        ("conversion/inner_products.cu", formats | {"WHOLE_ROWS": 1}),
        ("conversion/inner_products.cu", formats | {"WHOLE_ROWS": 1, "ADDEND": "float"}),
        ("conversion/nonfinite.cu", formats | {"REALS": 1, "SIXTEEN": 1, "ADDEND": "double"}),
        ("conversion/combine_rows.cu", {"FORMAT": half, "SUM": "int32_t", "OF_COLUMNS": 2, "ADDEND": "float"}),
        ("conversion/nonfinite.cu", formats | {"REALS": 1, "SIXTEEN": 1}),
        ("conversion/narrow.cu", {"FORMAT": half, "INPUT": "float", "ALONG_K": 0}),
        ("conversion/narrow.cu", {"FORMAT": half, "INPUT": "uint16_t", "ALONG_K": 1}),
        ("conversion/combine_rows.cu", {"FORMAT": half, "SUM": "int64_t", "OF_COLUMNS": SIXTEEN[half][2]}),
    ]


EVERYWHERE = [
    *(row_digits(half, columns, held=held) for half in SIXTEEN for columns, held in ((0, 1), (1, 1), (0, 0))),
    *(case for half in SIXTEEN for case in of_rows(half)),
    describe("double", 1),
    describe("float", 0),
    split("double", 14, 2, 0, 1),
    split("double", 14, 2, 0, 0),
    split("float", 7, 1, 0, 1),
    split("double", 7, 2, 8, 0, 1),
    ("conversion/limbs.cu", {}),
    ("conversion/reduce.cu", {}),
    ("conversion/sum_parts.cu", {}),
    *(("conversion/add_residues.cu", {"DIGITS": digits}) for digits in (1, 2, 3)),
    *(
        ("conversion/describe_parts.cu", {"INPUT": x, "REALS": reals, "ALONG_K": along_k})
        for x in ("float", "double")
        for reals, along_k in ((1, 0), (1, 1), (2, 0))
    ),
    *(
        ("conversion/axpby.cu", {"OUTPUT": out, "ADDEND": y, "ADD": add})
        for out, y, add in (
            ("float", "float", 1),
            ("double", "double", 1),
            ("double", "float", 1),
            ("double", "double", 0),
            ("double", "double", 2),
        )
    ),
    ("conversion/copy.cu", {"INPUT": "float", "OUTPUT": "double"}),
    ("conversion/copy.cu", {"INPUT": "double", "OUTPUT": "double"}),
    ("conversion/collect.cu", {"PRODUCT": "int32_t", "SUM": "int64_t"}),
    ("conversion/collect.cu", {"PRODUCT": "int64_t", "SUM": "int64_t"}),
    ("conversion/collect.cu", {"PRODUCT": "float", "SUM": "int32_t"}),
    split_fp16("double", 8, 2, 7, 1),
    split_fp16("float", 4, 1, 7, 0, 1),
    recombine("double", 14, 4, 0),
    recombine("double", 14, 4, 0, lower=1),
    recombine("double", 7, 3, 8),
    *(
        ("conversion/mirror.cu", {"ENTRY": entry, "CONJUGATE": int(entry == "double2")})
        for entry in ("double", "double2")
    ),
    combined(recombine("double", 14, 4, 0)),
    projected(recombine("double", 14, 4, 0)),
    *(listing(recombine("double", slices, limbs, 0)) for slices, limbs in ((14, 4), (20, 5), (21, 6), (22, 6))),
    listing(projected(recombine("double", 20, 5, 0))),
    listing(recombine("float", 7, 2, 0)),
    *(inner_products(of, of, of) for of in ("float", "double")),
    inner_products("float", "double", "double"),
    crossings("double", "double"),
    crossings("float", "float", inner=1),
    ("conversion/project.cu", {}),
    project("double", 2, 1, 0),
    project("double", 2, 1, 1),
    magnitudes("double", "double", 1, 0),
    magnitudes("double", "double", 1, 0, "double"),
    stack_facts("double", 1, 0, 128),
    stack_facts("float", 0, 1, 256),
    stack_facts("double", 1, 0, 1024, 2),
    overlap("double", "double", 12),
    overlap("float", "double", 1),
    ("conversion/inner.cu", {}),
    *(
        ("conversion/inner.cu", {"INPUT": dtype, "REALS": reals, "ALONG_K": along_k})
        for dtype, reals, along_k in (("double", 1, 1), ("double", 1, 0), ("float", 2, 1), ("float", 1, 0))
    ),
    scaled(describe("double", 1)),
    scaled(describe("double", 0, 2), 2),
    scaled(describe("float", 0)),
    scaled(split("double", 14, 2, 0, 1)),
    scaled(split("double", 15, 2, 0, 0, reals=2)),
    scaled(split("float", 7, 1, 0, 0)),
    scaled(magnitudes("double", "double", 1, 0)),
    scaled(magnitudes("double", "double", 1, 0, "double")),
    scaled(lower_by_exponents("double", "double")),
    scaled(split_numbers("double", 8, 0)),
    sample(1, 0, 1),
    sample(0, 1, 0),
    ("proof/proof.cu", {}),
    ("proof/proof_wide.cu", {}),
    lower_by_exponents("double", "double"),
    patch("double", "double", "double"),
    *(
        ("conversion/tops.cu", {"INPUT": dtype, "ALONG_K": along_k})
        for dtype in ("float", "double")
        for along_k in (0, 1)
    ),
    split_words("FP16", "RN", 2, 11, 1),
    split_words("TF32", "RNA", 2, 0, 0),
    word_mma("FP16", BY_BLOCKS),
    word_mma("FP16", ONE_PRODUCT, 1),
    word_mma("BF16", OF_ALL_K, tile=(4, 64, 64)),
    word_mma("TF32", SEVERAL, promotion="double", tile=(8, 32, 32)),
    *(("conversion/leading.cu", {"ALONG_K": along_k}) for along_k in (0, 1)),
    ("proof/relative.cu", {"MULTIPRECISION": 1}),
    ("proof/relative.cu", {"MULTIPRECISION": 0, "OUTPUT": "double"}),
    ("proof/bounds.cu", {}),
    *(("proof/bounds.cu", {"ENTRIES": 2, "PARTS": parts}) for parts in (1, 2)),
    *(("proof/bounds.cu", {"ENTRIES": 1, "PARTS": 1, "OUTPUT": of}) for of in ("float", "double")),
    ("proof/bounds.cu", {"ENTRIES": 1, "PARTS": 2, "OUTPUT": "double"}),
    describe("double", 0, 2),
    split("double", 30, 2, 0, 0, reals=2),
    recombine_complex("double", 15, 15, 4),
    split_numbers(None, 8, 1),
    split_numbers("double", 8, 0, short=0),
    *(("conversion/combine_digits.cu", {"DIGITS": digits}) for digits in (2, 3)),
    recombine_numbers(None, 8),
    recombine_numbers("double", 8),
    stack(Residues(14), 16),
    stack(Residues(14), 32),
    stack(Digits(3), 32, "f"),
]
MORE = [
    projected(recombine("float", 7, 2, 0)),
    projected(combined(recombine("double", 24, 6, 0))),
    listing(recombine("double", 20, 5, 0, lower=1)),
    *(listing(recombine("double", slices, limbs, 0)) for slices, limbs in ((3, 1), (9, 3), (16, 4), (17, 5), (49, 11))),
    listing(recombine("float", 11, 3, 0)),
    listing(projected(recombine("double", 14, 4, 0))),
    inner_products("double", "float", "double"),
    inner_products("double", "double", "float"),
    project("double", 2, 0, 1),
    project("double", 3, 1, 1, 1),
    project("float", 1, 1, 0),
    project("double", 6, 0, 0, 1),
    describe("double", 0),
    describe("float", 1),
    *(describe(dtype, along_k, 2) for dtype in ("float", "double") for along_k in (0, 1)),
    *(
        split("double", 30, 2, 0, along_k, tile=tile, reals=2)
        for along_k, tile in ((0, 192), (1, 192), (0, 256), (1, 256))
    ),
    *(split("float", 16, 1, 0, along_k, tile=tile, reals=2) for along_k, tile in ((0, 192), (1, 256))),
    split("double", 64, 4, 0, 0, tile=192, reals=2),
    recombine_complex("float", 8, 8, 2),
    recombine_complex("double", 28, 20, 7),
    combined(recombine_complex("double", 15, 15, 4)),
    combined(recombine_complex("float", 8, 8, 2), "float"),
    magnitudes("double", "double", 1, 0, tiles=(256, 192), reals=2),
    magnitudes("float", "float", 0, 1, tiles=(256, 192), reals=2),
    magnitudes("double", "double", 1, 0, "double", reals=2),
    overlap("double", "float", 12, 2),
    sample(1, 0, 0, 2),
    lower_by_exponents("double", "float", 2),
    patch("double", "double", "double", 2),
    combined(patch("double", "double", "double", 2)),
    split("double", 14, 2, 0, 1, tile=256),
    split("double", 14, 2, 0, 0, tile=192),
    split("double", 15, 2, 0, 1),
    split("double", 15, 2, 0, 0),
    split("double", 20, 3, 0, 1),
    split("double", 49, 6, 0, 0),
    split("float", 7, 1, 0, 0),
    split("float", 8, 2, 0, 1),
    split("float", 3, 1, 8, 1, 1),
    split("float", 3, 1, 8, 0),
    split("double", 7, 2, 8, 1),
    split("double", 8, 2, 7, 1),
    split("double", 16, 4, 8, 0),
    split_numbers(None, 8, 0, 1, 192),
    split_numbers("float", 8, 1, 1, 256),
    split_numbers(None, 8, 1, 1, 256, short=8),
    split_numbers(None, 8, 0, 1, 192, short=0),
    split_numbers(None, 2, 1, short=0),
    recombine_numbers(None, 2),
    recombine_numbers("float", 8),
    split_fp16("double", 11, 3, 6, 0, 1),
    split_fp16("double", 6, 3, 12, 1),
    recombine("double", 2, 1, 0),
    recombine("double", 15, 4, 0),
    *(recombine("double", slices, limbs, 0) for slices, limbs in ((17, 5), (20, 5), (21, 6), (22, 6), (24, 6))),
    recombine("double", 49, 11, 0),
    recombine("float", 7, 2, 0),
    recombine("float", 15, 4, 0),
    recombine("float", 3, 2, 8),
    recombine("double", 7, 4, 8, 1),
    recombine("double", 8, 3, 7),
    recombine("double", 8, 4, 7, 1),
    recombine("double", 11, 4, 6),
    combined(recombine("double", 20, 5, 0)),
    combined(recombine("double", 49, 11, 0)),
    combined(recombine("double", 14, 4, 0), "float"),
    combined(recombine("double", 7, 4, 8, 1)),
    combined(recombine("double", 16, 6, 8)),
    combined(recombine("float", 3, 2, 8), "float"),
    ("conversion/axpby.cu", {"OUTPUT": "float", "ADDEND": "float", "ADD": 2}),
    magnitudes("double", "double", 1, 1),
    magnitudes("double", "float", 0, 0),
    magnitudes("float", "float", 1, 0),
    magnitudes("float", "float", 0, 1, tiles=(256, 192)),
    magnitudes("float", "float", 1, 0, tiles=(256, 192), largest=1),
    magnitudes("double", "double", 1, 0, tiles=(256, 192)),
    magnitudes("float", "double", 1, 1, tiles=(256, 192)),
    magnitudes("double", "double", 1, 1, "double"),
    magnitudes("double", "float", 0, 0, "double"),
    magnitudes("float", "float", 1, 0, "double"),
    lower_by_exponents("float", "double"),
    lower_by_exponents("float", "float"),
    patch("float", "double", "double"),
    patch("float", "float", "float"),
    combined(patch("double", "double", "double")),
    split_words("FP16", "RN", 2, 11, 1, tile=128, together=2),
    split_words("FP16", "RN", 1, 0, 0, tile=256),
    split_words("FP16", "RN", 2, 11, 0, tile=192, together=2),
    split_words("TF32", "RNA", 2, 0, 0, tile=208, together=2),
    split_words("BF16", "RN", 3, 0, 1, tile=128),
    split_words("FP16", "RN", 2, 0, 0, tile=208),
    split_words("FP16", "RNA", 8, 11, 1),
    split_words("BF16", "RZ", 3, 0, 0),
    word_mma("FP16", SEVERAL, tile=(8, 64, 32)),
    stack(Residues(7), 32, "f"),
    stack(Residues(7), 64, "f", 200),
    stack(Residues(14), 256),
    stack(Residues(15), 64),
    stack(Residues(20), 16),
    stack(Residues(20), 128),
    stack(ComplexResidues(15).slices, 16, "D"),
    stack(ComplexResidues(15).slices, 64, "D"),
    stack(ComplexResidues(7).slices, 128, "F"),
    stack(Digits(6), 256),
    word_mma("TF32", BY_BLOCKS, held=2),  # shared memory holds less than a block, which is loaded turn by turn
    word_mma("FP16", BY_BLOCKS, tile=(8, 32, 32), held=9),
]
CASES = [("sm_90", *case) for case in EVERYWHERE + MORE]
CASES += [
    ("sm_90a", "products/residue_gemm_sm90.cu", {"ACCUMULATE": x, "PAIRS": pairs, "TRIANGLE": triangle})
    for x, pairs, triangle in ((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1))
]
CASES += [hoppers_stack(Residues(count), n) for count, n in ((14, 64), (13, 64), (14, 128))]
CASES += [hoppers_stack(Residues(7), n, "f") for n in (64, 128)]
CASES += [(*case[:2], case[2] | {"SHARED": 2}) for case in (describe_split("double", 14, 2, 0, 1, 0, 64, 1, 2, 1),)]
CASES += [
    thin_gemm(*case)
    for case in (
        ("double", 14, 2), ("double", 14, 4), ("double", 18, 4), ("double", 13, 1), ("float", 7, 4), ("double", 4, 3),
        ("double", 14, 4, 0), ("double", 14, 8), ("double", 15, 5),
    )
]  # fmt: skip
CASES += [("sm_90a", "proof/proof_gemm_sm90.cu", {}), ("sm_90a", "hardware/halves.cu", {})]
QUADRANTS = (("double", 14, 2, 4), ("double", 15, 2, 4), ("double", 20, 3, 5), ("double", 25, 4, 6), ("float", 7, 1, 2))
CASES += [split_quadrants(*case[:3], *view) for case in QUADRANTS for view in ((0, 192), (0, 256), (1, 192), (1, 256))]
CASES += [
    ("sm_90a", "conversion/recombine_quadrants.cu", {"OUTPUT": dtype, "SLICES": slices, "LIMBS": limbs})
    for dtype, slices, _, limbs in QUADRANTS
]
CASES += [
    projected(("sm_90a", "conversion/recombine_quadrants.cu", {"OUTPUT": "double", "SLICES": slices, "LIMBS": limbs}))
    for slices, limbs in ((14, 4), (20, 5))
]
CASES += [
    listing(("sm_90a", "conversion/recombine_quadrants.cu", {"OUTPUT": dtype, "SLICES": slices, "LIMBS": limbs}))
    for dtype, slices, _, limbs in QUADRANTS
]
CASES += [
    listing(projected(("sm_90a", "conversion/recombine_quadrants.cu", {"OUTPUT": "double", "SLICES": n, "LIMBS": 5})))
    for n in (18, 20)
]
CASES += [
    combined(
        ("sm_90a", "conversion/recombine_quadrants.cu", {"OUTPUT": dtype, "SLICES": slices, "LIMBS": limbs}), dtype
    )
    for dtype, slices, _, limbs in QUADRANTS[1:]
]
CASES += [
    describe_split(*case)
    for case in (
        ("double", 14, 2, 0, 1, 0, 256, 1, 1), ("double", 14, 2, 0, 0, 0, 192, 1, 4),
        ("double", 14, 2, 0, 0, 0, 192, 1, 4, 4, 1), ("float", 3, 1, 8, 0, 1, 192, 0, 4, 4, 1),
        ("double", 14, 2, 0, 0, 0, 192, 1, 2), ("double", 30, 4, 0, 0, 0, 192, 1, 4),
        ("double", 14, 2, 0, 1, 0, 256, 1, 2, 1), ("double", 14, 2, 0, 0, 0, 192, 1, 2, 1),
        ("float", 7, 1, 0, 0, 0, 192, 1, 4, 1), ("double", 30, 4, 0, 1, 0, 256, 1, 2),
        ("double", 4, 1, 7, 1, 1, 192, 0, 1),
        ("double", 7, 2, 8, 0, 1, 192, 0, 2), ("double", 7, 2, 8, 1, 0, 256, 1, 2),
        ("float", 7, 1, 0, 1, 0, 256, 1, 2), ("float", 8, 2, 0, 0, 0, 192, 1, 4),
        ("float", 3, 1, 8, 1, 0, 256, 0, 1), ("float", 3, 1, 8, 0, 1, 192, 0, 4), ("float", 3, 1, 8, 0, 1, 192, 1, 4),
        ("float", 3, 1, 8, 0, 1, 192, 0, 8), ("float", 3, 1, 8, 0, 1, 192, 0, 8, 4, 1),
        ("float", 3, 1, 8, 0, 1, 192, 0, 8, 4, 1, 4), ("float", 3, 1, 8, 0, 1, 192, 0, 4, 4, 1, 4),
        ("float", 7, 2, 8, 0, 1, 192, 0, 8, 4, 0, 4),
    )
]  # fmt: skip
CASES += [digit_gemm("float", count, 8) for count in (1, 2, 3)]
CASES += [
    (
        "sm_90a",
        "products/digit_gemm_sm90.cu",
        {"FORMAT": half, "SLICES": digits, "DIGIT_BITS": 8, "OF_COLUMNS": of_columns, "TILE_COLUMNS": width} | addend,
    )
    for addend in ({}, {"ADDEND": "float"})
    for half, digits, of_columns, width in (
        *(("BFloat16", 2, 2, 192), ("BFloat16", 2, 2, 128)),
        *(("BFloat16", 3, 2, 128), ("Float16", 3, 3, 128), ("Float16", 4, 3, 64)),
    )
]
CASES += [("sm_90a", *row_digits(half, of, 128, 1, 1 - of, threads=256)) for half in SIXTEEN for of in (0, 1)]
CASES += [("sm_90a", *row_digits(half, 0, rows, counted=0, threads=256)) for half in SIXTEEN for rows in (8, 64)]
CASES += [
    case
    for kind in (
        *(("BFloat16", (2, 3, 2), 8, 4, 5), ("BFloat16", (2, 3, 2), 16, 1, 4), ("BFloat16", (2, 3, 2), 32, 3, 4)),
        *(("BFloat16", (2, 3, 2), 64, 8, 3), ("Float16", (3, 3, 3), 8, 1, 3), ("Float16", (3, 3, 3), 64, 2, 2)),
        *(("Float16", (3, 4, 3), 8, 2, 3), ("Float16", (3, 4, 3), 64, 4, 2)),
    )
    for case in (few_rows(*kind), combined(few_rows(*kind), "float"))
]
CASES += [digit_gemm("double", *case) for case in ((3, 7), (7, 8), (4, 7))]
CASES += [
    ("sm_90a", "products/digit_far_sm90.cu", {"SLICES": count, "DIGIT_BITS": bits}) for count, bits in ((7, 8), (2, 7))
]
CASES += [
    tops_split_words(*case)
    for case in (
        (16, 1, 7, "FP16", "RN", 2, 11, 1, 128, 2), (32, 8, 16, "FP16", "RN", 2, 11, 0, 192, 2),
        (16, 8, 16, "TF32", "RNA", 2, 0, 0, 208, 2), (16, 8, 8, "BF16", "RN", 3, 0, 1, 128, 1),
        (32, 4, 8, "FP16", "RN", 1, 0, 0, 256, 1),
    )
]  # fmt: skip
CASES += [word_gemm(0, *case) for case in (("FP16", 11, 128), ("FP16", 11, 192), ("FP16", 11, 208))]
CASES += [word_gemm(0, "TF32", 0, columns) for columns in (128, 208)]
CASES += [word_gemm(1, "FP16", 0, *case) for case in ((128,), (208,), (256, 4))]
CASES += [
    word_pairs(*case)
    for case in (
        ("FP16", 0, "float", 256, 4), ("BF16", 0, "float", 192), ("TF32", 0, "float", 128),
        ("FP16", 1, "float", 192), ("BF16", 1, "float", 208), ("TF32", 1, "float", 128),
        ("FP16", 1, "double", 128), ("TF32", 1, "double", 128),
    )
]  # fmt: skip
CASES += [
    (arch, *case)
    for arch in OTHER_ARCHITECTURES
    for case in EVERYWHERE
    if arch != "sm_75" or not case[0].startswith("words/")  # words do not run on these
]


def name_of(case):
    arch, file, macros = case
    return "-".join([arch, file, *map(str, macros.values())])


def compile_kernel(arch, file, macros):
    """Compile a file; return the log of ptxas, which has a part for each kernel."""
    options = core.ProgramOptions(
        name=file,
        arch=arch,
        std="c++17",
        include_path=str(KERNELS),
        define_macro=[(name, str(value)) for name, value in macros.items()] or None,
        ftz=True,  # CuPy always appends this option
        ptxas_options="--verbose",
    )
    log = io.StringIO()
    core.Program((KERNELS / file).read_text(), "c++", options).compile("cubin", logs=log)
    return log.getvalue()


def parameters():
    """The cases, of which the first one of each folder is in the first tier of tests."""
    folders = [file.partition("/")[0] for _, file, _ in CASES]
    first = [folders.index(folder) == i for i, folder in enumerate(folders)]
    return [
        pytest.param(*case, id=name_of(case), marks=() if is_first else pytest.mark.full)
        for case, is_first in zip(CASES, first, strict=True)
    ]


@pytest.mark.parametrize(("arch", "file", "macros"), parameters())
def test_compiles_within_registers(arch, file, macros):
    log = compile_kernel(arch, file, macros)
    assert "warning" not in log, log
    assert "Potential Performance Loss" not in log, log  # wgmma instructions wait for each other
    limbs, of_complex = macros.get("LIMBS", 0) * macros.get("REALS", 1), macros.get("REALS", 1) == 2
    wide = limbs > 4 or macros.get("SUM64", 0) or macros.get("FEW", 0)

    kernels = re.split(r"Compiling entry function '(\w+)'", log)[1:]
    assert kernels, log
    for name, report in zip(kernels[::2], kernels[1::2], strict=True):
        frame = int(re.search(r"(\d+) bytes stack frame", report)[1])
        allowed = (COMPLEX_FRAME if of_complex else FRAME).get(name, 0) + put_aside(macros)
        allowed += more_of(MORE_FRAME, name, macros)
        assert frame <= allowed, f"{name} uses {frame} bytes of local memory, more than {allowed}: {report}"
        spilled = sum(map(int, re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report).groups()))
        allowed = (COMPLEX_SPILLED if of_complex else SPILLED).get(name, 0) + more_of(MORE_SPILLED, name, macros)
        assert spilled <= allowed, f"{name} spills {spilled} bytes: {report}"
        registers = int(re.search(r"Used (\d+) registers", report)[1])
        limit = WIDE_REGISTERS.get(name, REGISTERS[name]) if wide else REGISTERS[name]
        if name == "recombine_quadrants" and macros["SLICES"] > 20:  # two blocks of 128 threads
            limit = 224
        elif "ADDEND" in macros and name in COMBINED_REGISTERS:
            limit = COMBINED_REGISTERS[name][limbs > 4]
        elif name == "recombine" and macros["DIGIT_BITS"] == 0:
            of = tuple(macro for macro in ("PROJECTED", "UNDECIDED") if macro in macros)
            limit = 80 if macros["SLICES"] <= FEW_RESIDUES[of] and (arch != "sm_120" or not of) else 128
        if arch == "sm_75":  # whose multiprocessors have no more than 1024 threads
            limit = max(limit, 64)
        assert registers <= limit, f"{name} uses {registers} registers, more than {limit}"


@pytest.mark.parametrize("name", tensor_cores.FORMATS)
def test_tensor_cores_alone_are_not_kept_waiting(name):
    log = compile_kernel("sm_90a", str(tensor_cores.SOURCE), tensor_cores.FORMATS[name].macros)
    assert "warning" not in log, log
    assert "Potential Performance Loss" not in log, log
    assert "0 bytes stack frame" in log, log
    accumulators = {"uint8": 192, "int8": 192}.get(name, 104)  # fewer: the compiler left out the products
    assert accumulators < int(re.search(r"Used (\d+) registers", log)[1]) <= 255


def test_every_kernel_is_compiled_and_has_a_limit():
    found = {}
    for file in KERNELS.rglob("*.cu"):
        source = re.sub(r"//.*", "", file.read_text())
        for head in re.findall(r'extern "C" __global__ ([^;{]*)', source):
            found[next(name for name in re.findall(r"(\w+)\s*\(", head) if not name.startswith("__"))] = str(
                file.relative_to(KERNELS)
            )
    assert set(found) == set(REGISTERS)
    assert set(found.values()) == {file for _, file, _ in CASES}


_OF_NOBODY = re.compile(
    r"|(extern )?__shared__ .*;|Stages stages;|stages\.init\(.*\);|const int cluster = blockIdx.x / 2;"
)
"""Lines that may stand before a kernel waits for the kernel before it: they touch no memory of other kernels."""


def test_every_kernel_waits_for_the_one_before():
    """Every kernel waits once, since it may begin before the kernel before it ends (kernels/hardware/launch.cuh)."""
    for file in KERNELS.rglob("*.cu"):
        source = file.read_text()
        bodies = re.sub(r" *//.*", "", source).split('extern "C" __global__')[1:]
        waits = "beside_previous(beside != 0);" if "int beside" in source else "after_previous();"
        assert all(len(re.findall(r"^  \w+_previous\(.*\);$", body, re.M)) == 1 for body in bodies), file.name
        for body in bodies:
            before = body[body.index("{") + 1 : body.index(waits)].split("\n")
            known = all(_OF_NOBODY.fullmatch(line.strip()) for line in before)
            # These read results of older kernels, or read nothing and prefetch.
            assert known or file.name in ("nonfinite.cu", "few_rows_sm90.cu", "row_digits.cu"), file.name
        assert source.endswith("  after_both();\n}\n") == ("int beside" in source), file.name


FOLDERS = ("arithmetic", "hardware", "conversion", "products", "proof", "words", "stacks")


def test_a_folder_includes_from_those_before_it():
    found = 0
    for path in KERNELS.rglob("*.cu*"):
        for folder in re.findall(r'#include "(\w+)/', path.read_text()):
            assert FOLDERS.index(folder) <= FOLDERS.index(path.parent.name), path
            found += 1
    assert found > 100
    others = {"common.txt", "compiled"}  # the list of common kernels, and those that were compiled for a wheel
    assert {path.name for path in KERNELS.iterdir()} - others == {*FOLDERS, "cpu"}  # which CUDA does not compile
