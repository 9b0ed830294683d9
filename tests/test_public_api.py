"""What users may rely on: public names, their signatures and docstrings."""

import ast
import copy
import dataclasses
import doctest
import importlib
import inspect
import operator
import pathlib
import pickle
import re
import subprocess
import sys
import typing

import numpy as np
import pytest

import ozaki
from ozaki import linalg
from ozaki.account import Account, Entry
from ozaki.caches import CacheInfo
from ozaki.planning import Candidate
from ozaki.records.options import Options
from ozaki.schemes import ComplexResidues, Digits, Residues

FUNCTIONS = [
    "ascupy", "asnumpy", "cache_info", "clear_caches", "einsum", "emulate", "gemm", "get_num_threads", "matmul",
    "matrix_power", "mparray", "plan", "prepare", "recording", "residual", "set_num_threads", "tensordot",
]  # fmt: skip
CONTEXTS = ["Emulation", "Recording"]
CLASSES = ["Accuracy", "DevicesReport", "Plan", "Prepared", "Report", "Words"]
ERRORS = ["VerificationError"]
ARRAYS = ["MPArray"]
MODULES = ["linalg", "reference", "tensor_core"]

METHOD = (
    "scheme='auto', slices=None, engine='auto', reproducible=False, verify=False, inner_scaling=None, "
    "workspace_limit=None"
)
OPTIONS = f"accuracy=None, {METHOD}, dtype=None"

SIGNATURES = {
    "ascupy": "(x)",
    "asnumpy": "(x)",
    "cache_info": "()",
    "clear_caches": "()",
    "einsum": f"(subscripts, *operands, {OPTIONS}, progress=None)",
    "emulate": f"(accuracy=None, *, {METHOD}, report=False)",
    "get_num_threads": "()",
    "set_num_threads": "(n)",
    "tensordot": f"(a, b, axes=2, *, {OPTIONS}, progress=None)",
    "mparray": "(x, bits=None)",
    "matmul": f"(a, b, out=None, *, {OPTIONS}, plan=None, devices=None, progress=None, return_report=False)",
    "matrix_power": "(a, n, *, accuracy='exact', dtype=None)",
    "plan": f"(a, b, *, {OPTIONS}, strict=True)",
    "prepare": "(x, side, plan)",
    "recording": "()",
    "residual": "(a, x, b, *, accuracy='exact', dtype=None)",
    "gemm": f"(alpha, a, b, beta, c, *, {OPTIONS}, trans_a=False, trans_b=False, out=None, plan=None, progress=None, "
    "return_report=False)",
}

FIELDS = {
    "Accuracy": ["measure", "tolerance", "bits", "exponent"],
    "DevicesReport": ["plan", "bound", "devices"],
    "Plan": [
        "shape",
        "batch",
        "dtype",
        "scheme",
        "target",
        "bound",
        "unrounded_bound",
        "a_priori",
        "engine",
        "workspace_limit",
        "why",
        "strict",
        "parts",
        "inner_scaling",
        "undecided_apart",
        "candidates",
    ],
    "Prepared": ["side", "plan", "shape", "dtype", "slices", "backend"],
    "Report": [
        "bound",
        "unrounded_bound",
        "measure",
        "scheme",
        "slices",
        "products",
        "engine",
        "native",
        "why",
        "workspace_bytes",
        "reproducible",
        "nonfinite",
        "out_of_range",
        "underflows",
        "estimate",
        "exponent",
        "relative_bound",
        "rounded_once",
        "bounds",
        "verified",
        "recomputed",
        "inner_scaling",
        "undecided",
        "row_kinds",
    ],
    "Words": [
        "word",
        "count",
        "scale_bits",
        "pairs",
        "block",
        "promotion",
        "accumulators",
        "accumulator",
        "rounding",
        "core",
    ],
}


def test_the_public_names():
    assert ozaki.__all__ == [*sorted(CLASSES + ARRAYS + CONTEXTS + ERRORS), "__version__", *sorted(FUNCTIONS + MODULES)]
    for name in ozaki.__all__:
        assert hasattr(ozaki, name)
    public = [name for name, value in vars(ozaki).items() if name[0] != "_" and not inspect.ismodule(value)]
    assert sorted(public) == sorted(CLASSES + ARRAYS + CONTEXTS + ERRORS + FUNCTIONS)


WITHOUT_EXAMPLES = {"ascupy"}  # one would need a GPU


@pytest.mark.parametrize("name", [*sorted({*FUNCTIONS} - WITHOUT_EXAMPLES), *ARRAYS, "Accuracy", "Words"])
def test_examples_print_what_they_say(name):
    finder = doctest.DocTestFinder(recurse=name in ARRAYS)  # of an array, all methods' examples
    found = finder.find(getattr(ozaki, name), name, globs={})  # an example imports what it uses, so it can be pasted
    results = [doctest.DocTestRunner().run(examples) for examples in found]
    assert sum(each.attempted for each in results) > 0 == sum(each.failed for each in results)


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_examples_of_frameworks_print_what_they_say(name):
    pytest.importorskip(name, reason=f"{name} is not installed")
    module = importlib.import_module(f"ozaki.{name}")
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for place in (module, *(getattr(module, each) for each in module.__all__)):
        for examples in doctest.DocTestFinder(recurse=False).find(place, name, globs={}):
            assert doctest.DocTestRunner(optionflags=options).run(examples).failed == 0


def test_modules_come_with_the_package():
    names = ", ".join(f"ozaki.{name}" for name in MODULES)
    subprocess.run([sys.executable, "-c", f"import ozaki; print({names})"], check=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures(name):
    parameters = inspect.signature(getattr(ozaki, name)).parameters.values()
    bare = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters])
    assert str(bare) == SIGNATURES[name]


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_frozen_data(name):
    cls = getattr(ozaki, name)
    assert cls.__dataclass_params__.frozen
    names = [field.name for field in dataclasses.fields(cls)]
    assert names == FIELDS[name]


def test_a_prepared_operand_is_itself_alone():
    plan = ozaki.plan((30, 30), (30, 30), dtype="float64", scheme="residues", slices=14)
    x, y = (ozaki.prepare(np.ones((30, 30)), "left", plan) for _ in range(2))
    assert x == x and x != y and len({x, y}) == 2
    assert len(repr(x)) < 500 and "'left'" in repr(x)


def test_a_prepared_operand_is_its_own_copy_and_says_what_to_pickle():
    plan = ozaki.plan((3, 3), (3, 3), dtype="float64", scheme="residues", slices=14)
    x = ozaki.prepare(np.eye(3), "right", plan)
    assert copy.copy(x) is x and copy.deepcopy([x])[0] is x
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(
            TypeError, match=r"pickle the operand and `prepared\.plan`.*ozaki\.prepare\(operand, 'right'"
        ):
            pickle.dumps([x], protocol)


def plain_data():
    """Plain data of every kind: yields plans, reports and other results."""
    a, b = np.random.default_rng(0).standard_normal((2, 20, 20))
    x, y = a.astype("f4"), b.astype("f4")
    for operands, options in (
        ((a, b), {}),
        ((a, b), {"accuracy": ozaki.Accuracy("normwise", 1e-9), "reproducible": True, "workspace_limit": 10**8}),
        ((a, b), {"scheme": "digits", "slices": 5, "engine": "int8-simulated"}),
        ((x, y), {"scheme": "halfhalf"}),
    ):
        yield ozaki.plan(*operands, **options)
        yield ozaki.matmul(*operands, return_report=True, **options)[1]
    yield ozaki.plan(a.shape, b.shape, dtype="float64")
    yield from (ozaki.Accuracy("row-column", 1e-9), ozaki.Words(), ozaki.Words(core=ozaki.tensor_core.V100))
    yield from (ozaki.tensor_core.A100, ozaki.plan(a, b, accuracy=70).target)


def test_plain_data_are_pickled_and_copied():
    for x in plain_data():
        copies = [pickle.loads(pickle.dumps(x, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
        for again in (*copies, copy.copy(x), copy.deepcopy(x)):
            assert type(again) is type(x) and again == x and hash(again) == hash(x) and repr(again) == repr(x)


WITHOUT_SECTIONS = {"cache_info": {"Raises"}, "clear_caches": {"Returns", "Raises"}, "set_num_threads": {"Returns"}}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_of_functions(name):
    function = getattr(ozaki, name)
    text, known = inspect.getdoc(function), inspect.signature(function).parameters.values()
    sections = {"Parameters", "Returns", "Raises"} if known else {"Returns", "Raises"}
    for section in sections - WITHOUT_SECTIONS.get(name, set()):
        assert f"\n{section}\n{'-' * len(section)}\n" in text, section
    parameters = re.split(r"\n\n(?=\w+\n-+\n)", text.partition("\nParameters\n")[2])[0]
    elsewhere = {*Options._fields} if "**options" in parameters else set()  # in the docstring of `matmul`
    for parameter in known:
        if parameter.name in elsewhere:
            continue
        stars = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        shown = f"{stars}{parameter.name}"
        assert shown in parameters, parameter


LINALG = [name for name in linalg.__all__ if name.islower()]
PRODUCTS = linalg.blas.__all__  # arrays, without a bound


@pytest.mark.parametrize("name", sorted({*LINALG} - {*PRODUCTS}))
def test_docstrings_of_linear_algebra_name_parameters_bound_and_example(name):
    function = getattr(linalg, name)
    text = inspect.getdoc(function)
    for section in ("Parameters", "Returns", "Raises", "Notes", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text, section
    parameters = re.split(r"\n\n(?=\w+\n-+\n)", text.partition("\nParameters\n")[2])[0]
    described = re.findall(r"^(\w+(?:, \w+)*)(?: :.*)?$", parameters, re.M)
    assert ", ".join(described).split(", ") == list(inspect.signature(function).parameters)
    assert re.search(r"docs/linalg\.md,\s+L\d", text.partition("\nNotes\n")[2])


@pytest.mark.parametrize("name", LINALG)
def test_examples_of_linear_algebra_print_what_they_say(name):
    documented, printed = operator.attrgetter(name)(linalg), []
    if name in ("lu_factor", "lu_solve", "qr"):
        pytest.importorskip("scipy", reason="SciPy is not installed")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(documented), {}, name, None, None)
    runner.run(examples, out=printed.append)
    assert examples.examples and runner.summarize(verbose=False).failed == 0, "".join(printed)


@pytest.mark.parametrize("name", CLASSES)
def test_docstrings_of_classes(name):
    text = inspect.getdoc(getattr(ozaki, name))
    assert "Attributes\n-" in text or "Parameters\n-" in text
    for field in FIELDS[name]:
        assert field in text


@pytest.mark.parametrize("name", ["Accuracy", "Words"])  # which may be given by position
def test_parameters_are_described_in_the_order_of_the_signature(name):
    parameters = inspect.getdoc(getattr(ozaki, name)).split("\nParameters\n")[1].split("\n\n")[0]
    described = re.findall(r"^(\w+) :", parameters, re.M)
    assert described == list(inspect.signature(getattr(ozaki, name)).parameters)


def test_classes_that_results_hold_can_be_imported():
    a = np.eye(2)
    with ozaki.emulate(accuracy="fp64") as run:
        np.dot(a, a)
    assert all(isinstance(each, CacheInfo) for each in ozaki.cache_info().values())
    assert isinstance(run.account, Account) and isinstance(run.account.entries[0], Entry)
    assert all(isinstance(each, Candidate) for each in ozaki.plan(a, a).candidates)
    assert isinstance(ozaki.plan(a, a, scheme="digits").scheme, Digits)
    assert isinstance(ozaki.plan(a, a, scheme="residues").scheme, Residues)
    assert isinstance(ozaki.plan(a + 0j, a + 0j, scheme="residues").scheme, ComplexResidues)


def test_every_module_has_a_docstring():
    """Every module has a docstring, also those with a leading underscore, for which the linter requires none."""
    paths = list(pathlib.Path(ozaki.__file__).parent.rglob("*.py"))
    assert pathlib.Path(ozaki.__file__) in paths
    for path in paths:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_annotations_resolve():
    for name in FUNCTIONS:
        assert typing.get_type_hints(getattr(ozaki, name))


def test_importing_needs_neither_cupy_nor_the_extras():
    missing = ["cupy", "jax", "matplotlib", "pynvml", "scipy", "torch"]
    code = f"""
import sys
for name in {missing}:
    sys.modules[name] = None
import numpy as np, ozaki
c, report = ozaki.matmul(np.eye(3), np.eye(3), accuracy="fp64", scheme="residues", return_report=True)
assert (c == np.eye(3)).all(), report
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
