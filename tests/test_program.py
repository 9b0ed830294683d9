"""Programs as data: arrays, builders, memory known before a run, listings; for devices that need not be there."""

import random
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ozaki.backends.cupy import devices
from ozaki.backends.cupy.facts import Asked, facts_program
from ozaki.backends.cupy.inputs import Inputs, OperandView, Views
from ozaki.backends.cupy.machine import Machine
from ozaki.backends.cupy.made import Made
from ozaki.backends.cupy.products import Repetition, product_program, program_of
from ozaki.backends.cupy.program.arena import ALIGNMENT, Life, most_at_once, offsets
from ozaki.backends.cupy.program.arrays import DTYPES, Array, Buffer, View, view_of
from ozaki.backends.cupy.program.builder import Builder
from ozaki.backends.cupy.program.kernels import Kernel, struct
from ozaki.backends.cupy.program.steps import Clear, Out, Upload
from ozaki.backends.cupy.steps import product
from ozaki.backends.cupy.steps.engines.choice import engine_of
from ozaki.backends.cupy.steps.epilogue import Round
from ozaki.planning.facts import WorstRatio
from ozaki.records.accuracy import Accuracy
from ozaki.records.plan import Plan
from ozaki.records.report import counted
from ozaki.records.shapes import shapes
from ozaki.schemes import PRESETS, Digits, Residues, Words

H100 = devices.of("90", multiprocessors=132, shared_memory=233472)
A100 = devices.of("80", multiprocessors=108, shared_memory=167936)
L4 = devices.of("89", multiprocessors=58, shared_memory=102400)


def plan_of(scheme, shape, dtype="float64", **choices):
    return Plan(shape, (), dtype, scheme, Accuracy("componentwise", 1e-15), np.inf, np.inf, True, **choices)


def product_of(device, plan):
    """The program of a product, built from a plan and shapes alone."""
    (m, k, n), char = plan.shape, np.dtype(plan.dtype).char
    b = Builder()
    views = [view_of(np.empty((1, rows, k), char)) for rows in (m, n)]
    left, right = (b.given(name, view) for name, view in zip("ab", views, strict=True))
    out = b.given("c", view_of(np.empty((1, m, n), char)))
    product.multiply(b, device, engine_of(device, plan), plan, left, right, Round(out))
    return b.program()


def nothing(*arguments, **options):
    return Kernel.of("file.cu", "nothing", {}, (1,), (32,), *arguments, **options)


def test_arrays_lie_where_numpy_has_them():
    memory = np.arange(4 * 5 * 6, dtype=np.float32)
    real = memory.reshape(4, 5, 6)
    array = Array(Buffer("x", memory.nbytes, "workspace"), 0, *view_of(real))

    def check(array, real):
        assert array.view == view_of(real)
        assert array.offset == real.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
        assert array.contiguous == real.flags.c_contiguous and array.nbytes == real.nbytes

    check(array, real)
    check(array.part(1, 2, 4), real[:, 2:4])
    check(array.part(0, 1, 2).part(2, 3, 6), real[1:2, :, 3:6])
    check(array.at_index(0, 2), real[2])
    check(array.at_index(1, 3).swapped(), real[:, 3].T)
    check(array.part(0, 1, 3).reshape(10, 6), real[1:3].reshape(10, 6))
    assert array.with_axis(1).shape == real[:, None].shape
    assert array.at_index(0, 2).at.plus(4).offset == array.offset + 2 * real.strides[0] + 4
    with pytest.raises(AssertionError):
        array.part(1, 2, 6)
    with pytest.raises(AssertionError):
        array.part(1, 2, 4).reshape(48)


def test_views_tell_all_but_the_address():
    view = view_of(np.empty((2, 6, 5)).swapaxes(1, 2))
    assert view == View(DTYPES["d"], (2, 5, 6), (30, 1, 5))
    assert (view.dtype.ctype, view.dtype.itemsize, view.along_k) == ("double", 8, 0)
    assert view_of(np.empty((2, 6, 5), complex)).steps_of_parts == (60, 10, 2)
    for char, dtype in DTYPES.items():
        assert (dtype.char, dtype.itemsize) == (char, np.dtype(char).itemsize)
        assert dtype.parts == 1 + np.issubdtype(char, np.complexfloating)


def test_kernels_have_arguments_in_pieces():
    kernel = nothing(None, 3, -1, (None, 2.5, (4, None)), struct([1, 2, 3]))
    minus_one, half = 2**64 - 1, int(np.float64(2.5).view(np.uint64))
    assert kernel.pieces == (0, 3, minus_one, 0, half, 4, 0, 1 | 2 << 32, 3)
    assert kernel.addresses == (0, 3, 6) and kernel.starts == (0, 1, 2, 3, 7)
    assert kernel.launched and not Kernel.of("file.cu", "nothing", {}, (2, 0), (32,)).launched


def test_memory_of_needs_that_meet_lies_apart():
    rng = random.Random(1)
    for _ in range(200):
        lives = []
        for _ in range(rng.randint(0, 12)):
            first = rng.randint(0, 9)
            lives.append(Life(rng.randint(0, 5000), first, rng.randint(first, 10)))
        begins, nbytes = offsets(lives)
        ends = [begin + life.nbytes for begin, life in zip(begins, lives, strict=True)]
        assert all(begin % ALIGNMENT == 0 for begin in begins) and max(ends, default=0) <= nbytes
        for i, x in enumerate(lives):
            for j, y in enumerate(lives[:i]):
                if x.first <= y.last and y.first <= x.last and x.nbytes and y.nbytes:
                    assert ends[i] <= begins[j] or ends[j] <= begins[i]
        most = max((sum(x.nbytes for x in lives if x.first <= at <= x.last) for at in range(11)), default=0)
        assert most_at_once(lives) == most <= nbytes


def test_memory_is_used_again():
    _, nbytes = offsets([Life(1000, i, i) for i in range(5)])
    assert nbytes == 1024
    begins, nbytes = offsets([Life(512, 0, 4), Life(512, 1, 2), Life(512, 3, 4), Life(1024, 4, 4)])
    assert (begins, nbytes) == ([0, 512, 512, 1024], 2048)


def test_a_program_keeps_what_later_ones_read():
    x, c = (Array(Buffer(name, 0, "given"), 0, *View(DTYPES["d"], (4,), (1,))) for name in "xc")
    b = Builder([x.buffer])
    first, passing = b.array("first", (100,), "d"), b.array("passing", (30,), "d")
    b.launch(nothing(None, None, None), x, Out(first), Out(passing))
    of_first = b.program(keeps=[first, x])  # given buffers are the caller's
    assert (of_first.given, of_first.inputs, of_first.keeps) == ((x.buffer,), (), (first.buffer,))
    assert of_first.workspace == 800 + 240 and of_first.room.kept == 800
    assert first.buffer not in of_first.room.offsets and passing.buffer in of_first.room.offsets

    b = Builder([x.buffer])
    out = b.given("c", View(DTYPES["d"], (4,), (1,)))
    second = b.array("second", (50,), "d")
    b.launch(nothing(None, None), first, Out(second))
    b.release(first)
    third = b.array("third", (60,), "d")
    b.launch(nothing(None, None, None), second, third, Out(out))
    following = b.program()
    assert (following.inputs, following.releases) == ((first.buffer,), ((1, first.buffer),))
    assert following.workspace == 400 + 480  # the first one is counted where it was made
    with pytest.raises(ValueError, match="first: released"):
        b.launch(nothing(None), first)

    both = of_first.then(following)
    assert (both.given, both.inputs, both.keeps) == ((x.buffer, out.buffer), (), ())
    assert len(both.steps) == 3 and both.workspace == 800 + 240 + 480 - 80  # `first` is free before `third` is needed
    assert set(both.room.offsets) == {each.buffer for each in (first, passing, second, third)}
    assert c.buffer not in both.buffers


def test_what_other_streams_touch_shares_its_memory_with_nothing():
    b = Builder()
    c = b.given("c", View(DTYPES["d"], (4,), (1,)))
    names = "before", "beside", "after"
    before, beside, after = (b.array(name, (1000,), "B") for name in names)
    b.launch(nothing(None), Out(before))
    b.release(before)
    with b.on("proof", fork=True):
        b.launch(nothing(None), Out(beside))
    b.release(beside)
    b.launch(nothing(None, None), Out(after), c)
    places, nbytes = b.program().room[2:4]
    assert places[before.buffer] == places[after.buffer] != places[beside.buffer] and nbytes == 2048
    assert b.program().workspace == 1000


def test_a_kernel_that_overlaps_the_step_before_it_has_other_memory():
    b = Builder()
    x, y, z = (b.array(name, (1000,), "B") for name in "xyz")
    b.launch(nothing(None), Out(x))
    b.launch(nothing(None, None), x, Out(y))
    b.release(x)
    b.launch(nothing(None), Out(z), overlaps=True)
    places, _ = b.program().room[2:4]
    assert len({places[each.buffer] for each in (x, y, z)}) == 3


def test_programs_of_these_operands_alone():
    b = Builder()
    x = b.array("x", (2,), "d")
    b.add(Clear("main", x.at, x.nbytes))
    assert b.program().repeatable
    b.add(Upload("main", bytes(16), x.at))
    assert not b.program().repeatable


def views_of(m, k, n, dtype="float64"):
    """The views of C-contiguous operands as rows, and of their product."""
    a, b, c = (np.empty(shape, dtype) for shape in ((1, m, k), (1, k, n), (1, m, n)))
    left, right = OperandView((view_of(a),), (view_of(a),)), OperandView((view_of(b),), (view_of(b.swapaxes(1, 2)),))
    return Views(left, right), OperandView((view_of(c),))


@pytest.mark.parametrize(("device", "one_read"), [(H100, True), (A100, False)], ids=["90", "80"])
def test_programs_of_facts_are_made_of_plain_data(device, one_read):
    """Facts and early slices are outputs of one program, and inputs of that of the product; both are pure functions."""
    views, out = views_of(300, 400, 300)
    plan = plan_of(Residues(14), (300, 400, 300))
    ratio, other = (WorstRatio(scheme, "narrow") for scheme in (Residues(14), Residues(13)))

    def made_anew():
        inputs = Inputs.of(views)
        asked = Asked([ratio], "float64", likely=plan)
        facts, made = facts_program(inputs, device, asked, Made.of(inputs))
        more, both = facts_program(inputs, device, Asked([other], "float64"), made)
        return facts, made, more, product_program(inputs, device, plan, out, both)

    facts, made, more, product = made_anew()
    assert [*map(str, made_anew()[::2])] == [str(facts), str(more)] and str(made_anew()[3]) == str(product)
    assert made.early.scheme == plan.scheme and made.open.level == "narrow"
    assert ("describe_split" in str(facts)) == one_read and "split" not in str(product)
    assert [*facts.readers] == [ratio] and [*more.readers] == [other]
    assert "magnitudes" not in [step.name for step in more.steps], "the lower bound is there already"
    kept = {buffer.name for buffer in facts.keeps}
    assert {"a.planes", "b.planes", "a.fields", "b.fields", "a.exponents"} <= kept
    assert set(product.inputs) <= {*facts.keeps, *more.keeps}

    whole = Repetition(views, device, plan, out, Asked([ratio], "float64", likely=plan)).program()
    assert not whole.inputs and not whole.keeps and [*whole.readers] == [ratio]
    assert [step.name for step in whole.steps] == [step.name for step in (*facts.steps, *product.steps)]
    alone = Repetition(views, device, plan, out, Asked([], "float64")).program()
    assert not alone.readers and not alone.room.aside and whole.room.aside


def test_a_listing_is_read_by_people():
    head, *lines = str(product_of(H100, plan_of(Residues(14), (4096, 4096, 4096)))).splitlines()
    assert re.fullmatch(r"14 residues of \(4096 x 4096\) \(4096 x 4096\), float64, sm_90a; workspace \d+ MiB", head)
    names = "describe_split", "describe_split", "residue_gemm", "recombine", "patch"
    assert [line.split()[:2] for line in lines] == [[str(i), name] for i, name in enumerate(names, 1)]
    assert re.search(r"residue_gemm +a\.planes, b\.planes -> y +grid 132, 384 threads$", lines[2])
    assert re.search(r"recombine +y, a\.exponents, b\.exponents -> c", lines[3])


@pytest.mark.parametrize("device", [H100, A100, L4], ids=lambda device: device.capability)
@pytest.mark.parametrize(
    "scheme", [Residues(14), Digits(3), Digits(7), Digits(10), Residues(30), Digits(4, 8, "fp16")], ids=str
)
@pytest.mark.parametrize("shape", [(300, 400, 500), (5, 70, 3), (2000, 3000, 1000)])
def test_buffers_are_written_before_they_are_read(device, scheme, shape):
    plan = plan_of(scheme, shape)
    for limit in (None, 2 * 10**7 + 12 * shape[1] * 600):
        program = product_of(device, replace(plan, workspace_limit=limit))
        written, released = set(program.given), dict.fromkeys(buffer for _, buffer in program.releases)
        for step in program.steps:
            reads = {place.buffer for place in step.reads}
            assert reads <= written, (str(step), [x.name for x in reads - written])
            written |= {place.buffer for place in step.writes}
        counted = [x for x in program.buffers if x.kind == "workspace" and x.counted]
        assert all(x in released for x in counted), [x.name for x in counted if x not in released]
        assert limit is None or program.workspace <= limit


@pytest.mark.parametrize("device", [H100, A100, L4], ids=lambda device: device.capability)
@pytest.mark.parametrize("scheme", [Residues(12), Residues(60), Residues(1900)], ids=str)
def test_programs_of_multiprecision_numbers(device, scheme):
    """The program of a plan for a multiprecision result has operands of as many bits."""
    plan = replace(plan_of(scheme, (300, 400, 500), "mp106"), batch=(2, 1))
    if device is L4 and scheme.count == 1900:
        with pytest.raises(ValueError, match=r"accuracy: its integers take .* bytes of shared memory"):
            program_of(plan, device)
        return
    program = program_of(plan, device)
    names = [f"{plane} of {name}" for name in "abc" for plane in ("signs", "exponents", "limbs")]
    assert [buffer.name for buffer in program.given] == names
    written = set(program.given[:6])
    for step in program.steps:
        assert {place.buffer for place in step.reads} <= written | set(program.given), str(step)
        written |= {place.buffer for place in step.writes}
    assert written >= set(program.given)
    steps = [step.name for step in program.steps]
    describing = ["row_tops", "leading", "row_bottoms"]
    assert [name for name in steps if name in describing] == 2 * describing
    # Right rows, which are split first, lie across k in memory, left ones along it; numbers have four limbs.
    split = [step.kernel for step in program.steps if step.name == "split_numbers"]
    assert [kernel.macros["ALONG_K"] for kernel in split] == [0, 1]
    assert [kernel.pieces[3:5] for kernel in split] == [(2 * 400 * 500, 4), (2 * 300 * 400, 4)]
    last = [step for step in program.steps if step.name == "recombine_numbers"]
    assert {step.kernel.macros["MULTIPRECISION"] for step in last} == {1}
    assert {place.buffer for step in last for place in step.writes} == set(program.given[6:])
    fused = device is H100 and scheme.count < 1900
    assert ("residue_gemm" in steps, "combine_digits" in steps) == (fused, not fused and scheme.count > 49)
    head = str(program).splitlines()[0]
    assert head.startswith(f"{counted(scheme.count, 'residues')} of (300 x 400) (400 x 500), mp106, sm_")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_listing_of_a_native_product(dtype):
    program = program_of(plan_of(None, (30, 40, 50), dtype), A100)
    assert str(program).startswith(f"native product of (30 x 40) (40 x 50), {dtype}")
    assert program.workspace == 0  # operands have the dtype of the product, so none is copied
    places = [place for step in program.steps for place in (*step.reads, *step.writes)]
    assert {place.buffer.name for place in places} == {"a", "b", "c"}


def test_programs_of_empty_multiprecision_products():
    for shape in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        assert program_of(plan_of(Residues(12), shape, "mp106"), A100).steps == ()


def test_engines_by_the_record_of_a_device():
    large, narrow = (4096, 4096, 4096), (100, 9000, 100)
    cases = [
        (H100, Residues(14), large, "fused int8 kernel"),
        (H100, Residues(14), (8192, 8192, 8192), "fused int8 kernel, Strassen-Winograd"),
        (H100, Residues(14), narrow, "cuBLAS int8"),
        (H100, Digits(9), large, "cuBLAS int8"),
        (A100, Residues(14), large, "cuBLAS int8"),
        (L4, Digits(4, 8, "fp16"), large, "cuBLAS FP16"),
        (H100, PRESETS["halfhalf"], large, "wgmma kernel"),
        (A100, PRESETS["halfhalf"], large, "mma.sync kernel"),
    ]
    for device, scheme, shape, label in cases:
        dtype = "float32" if isinstance(scheme, Words) else "float64"
        engine = engine_of(device, plan_of(scheme, shape, dtype))
        assert engine.label == label and engine.keeps == scheme.exact
    assert not engine_of(H100, plan_of(Digits(4), large, engine="fused")).keeps  # which round in registers
    with pytest.raises(ValueError, match="engine: 'fused' multiplies residues"):
        engine_of(A100, plan_of(Residues(14), large, engine="fused"))


def test_machines_answer_without_a_gpu():
    rtx_5090 = devices.of("120", multiprocessors=170, shared_memory=102400)
    h100, a100, unknown = (Machine(device) for device in (H100, A100, rtx_5090))
    square = shapes((4096, 4096), (4096, 4096))
    assert h100.fastest(square, "float64", (Residues(14), None)) == Residues(14)
    assert a100.fastest(square, "float64", (Digits(7), None)) is None
    assert h100.seconds(square, "float32", PRESETS["halfhalf"]) < h100.seconds(square, "float32", None)
    assert a100.seconds(square, "float32", PRESETS["halfhalf"]) is None
    assert h100.obstacle(PRESETS["halfhalf"], "auto") is None
    assert "add as those of A100" in a100.obstacle(PRESETS["halfhalf"], "auto")
    assert "8.0, 8.6, 8.7, 8.9, 9.0, not 12.0" in unknown.obstacle(PRESETS["halfhalf"], "auto")
    assert h100.obstacle(Residues(49), "auto") is None
    assert h100.obstacle(Digits(3, 12, "fp16"), "cublas") is None
    assert "digits of 12 bits have no kernels for int8" in h100.obstacle(Digits(3, 12), "auto")
    assert h100.obstacle(Residues(2000), "auto") is None
    assert "multiplies residues below 2**14" in h100.obstacle(Residues(2000), "fused")
    times = [h100.seconds(shapes((n, n), (n, n)), "float64", Residues(14)) for n in (512, 1024, 2048, 4096, 8192)]
    assert all(x <= y for x, y in pairwise(times))


def test_programs_are_built_without_cupy():
    names = ("facts", "products", "program.builder", "machine", "devices")
    imports = "; ".join(f"import ozaki.backends.cupy.{name}" for name in names)
    code = f"import sys; sys.modules['cupy'] = None; {imports}"
    subprocess.run([sys.executable, "-c", code], check=True)
