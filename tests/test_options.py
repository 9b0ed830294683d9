"""The options of a product: each is written once, and every function that multiplies takes the same ones."""

import importlib
import inspect
import typing

import numpy as np
import pytest

import ozaki
from ozaki.records.options import AccuracyOptions, MethodOptions, Options, ProductOptions

KINDS = {
    "matmul": ProductOptions,
    "gemm": ProductOptions,
    "plan": ProductOptions,
    "einsum": ProductOptions,
    "tensordot": ProductOptions,
    **dict.fromkeys([f"linalg.{name}" for name in ("trmm", "symm", "hemm", "syrk", "herk")], ProductOptions),
    "emulate": AccuracyOptions,
    "torch.matmul": AccuracyOptions,
    "torch.bmm": AccuracyOptions,
    "torch.addmm": AccuracyOptions,
    "torch.emulate": AccuracyOptions,
    "jax.matmul": AccuracyOptions,
    "jax.dot_general": AccuracyOptions,
}
"""All public functions that take options, and which."""

OF_ONE_PROMISE = {"matrix_power", "residual"}
"""Functions of an accuracy and a dtype alone: how they multiply follows from what they promise."""


def function_of(name):
    module, _, of = name.rpartition(".")
    if module in ("torch", "jax"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    return getattr(importlib.import_module(f"ozaki.{module}".rstrip(".")), of)


def shown(function):
    return [name for name in inspect.signature(function).parameters if name in Options._fields]


def test_the_typed_set_is_the_record():
    assert typing.get_type_hints(ProductOptions) == typing.get_type_hints(Options)
    assert MethodOptions.__optional_keys__ < AccuracyOptions.__optional_keys__ < ProductOptions.__optional_keys__


@pytest.mark.parametrize("name", KINDS)
def test_each_function_takes_and_shows_its_set_of_options(name):
    function, known = function_of(name), KINDS[name].__optional_keys__
    assert shown(function) == [each for each in Options._fields if each in known]
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in known:
            assert parameter.default == Options._field_defaults[parameter.name]
    (typed,) = typing.get_args(typing.get_type_hints(function)["options"])
    own = inspect.signature(inspect.unwrap(function), follow_wrapped=False).parameters
    assert typed.__optional_keys__ <= known <= typed.__optional_keys__ | own.keys()


def test_no_other_function_takes_options():
    for module in ("", *(f".{name}" for name in ("linalg", "reference", "tensor_core"))):
        of = importlib.import_module(f"ozaki{module}")
        for name in of.__all__:
            if f"{module}.{name}".strip(".") not in {*KINDS, *OF_ONE_PROMISE} and inspect.isfunction(
                function := getattr(of, name)
            ):
                rounds_to_nearest = name in ("solve", "inv", "cholesky", "lu_factor", "qr", "eigvalsh")
                assert {*shown(function)} <= {"accuracy", "dtype", *["reproducible"] * rounds_to_nearest}, name


def called(name, **options):
    """Call a function with operands that it takes."""
    function = function_of(name)
    if name == "torch.bmm":
        return function(*importlib.import_module("torch").ones(2, 1, 2, 2), **options)
    one = importlib.import_module("torch").eye(2) if name.startswith("torch") else np.eye(2)
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    operands = {"subscripts": "ij,jk", "operands": one, "dimension_numbers": (((1,), (0,)), ((), ()))}
    return function(*(operands.get(each.name, one) for each in required if each.kind < 3), **options)


@pytest.mark.parametrize("name", KINDS)
def test_another_name_is_refused_as_python_refuses_it(name):
    for wrong in ("accurate", "slice", "return_reports", *(() if KINDS[name] is ProductOptions else ("dtype",))):
        by = "matmul" if name == "torch.bmm" else name.rpartition(".")[2]
        with pytest.raises(TypeError, match=rf"^{by}\(\) got an unexpected keyword argument '{wrong}'$"):
            called(name, **{wrong: "float64"})


def test_a_call_without_options_has_the_defaults():
    assert Options.of("matmul", {}) == Options()


def test_engines_by_their_old_names():
    assert Options.of("matmul", {"engine": "hopper"}) == Options.of("matmul", {"engine": "fused"})
    with pytest.raises(ValueError, match=r"^engine: 'fused' is not available for numpy arrays"):
        ozaki.matmul(np.eye(2), np.eye(2), engine="hopper", scheme="residues", slices=14)
