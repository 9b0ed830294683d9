"""The options of a product: how `ozaki.matmul`, and every function that multiplies as it does, is told what to do.

Each option is written here alone, in two lines: its type, for signatures (`**options: Unpack[ProductOptions]`), and its
default, in `Options`. Its documentation stands in the docstring of `ozaki.matmul`, what it must satisfy in
`planning/checks.py: check_options`. Functions pass all options on without naming them.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, NamedTuple, TypedDict, TypeVar

from ozaki.records.accuracy import Accuracy
from ozaki.schemes import PRESETS, Words

_Function = TypeVar("_Function", bound=Callable[..., Any])


class MethodOptions(TypedDict, total=False):
    """The options that say how a product is computed."""

    scheme: str | Words
    slices: int | None
    engine: str
    reproducible: bool
    verify: bool
    inner_scaling: bool | None
    workspace_limit: int | None


class AccuracyOptions(MethodOptions, total=False):
    """Those, and how accurate it is: the options of functions whose operands decide the format of the result."""

    accuracy: Accuracy | str | float | None


class ProductOptions(AccuracyOptions, total=False):
    """All options, with the format of the result."""

    dtype: str | None


ENGINES = ("float64", "int8", "int8-simulated", "cublas", "fused")
"""The names of all engines, of every backend, that a caller may give."""

OLD_NAMES = {"hopper": "fused"}
"""Names that engines had before, with those that they have now."""


class Options(NamedTuple):
    """The options of one product, as the caller gave them."""

    accuracy: Accuracy | str | float | None = None
    scheme: str | Words = "auto"
    slices: int | None = None
    engine: str = "auto"
    reproducible: bool = False
    verify: bool = False
    inner_scaling: bool | None = None
    workspace_limit: int | None = None
    dtype: str | None = None

    @classmethod
    def of(cls, function: str, options: Mapping[str, Any], known: type[Any] = ProductOptions) -> "Options":
        """The options of a call of a function that takes those `known`.

        Raises
        ------
        TypeError
            For any other, as Python itself raises it.
        """
        if not options:
            return NONE_GIVEN
        if not options.keys() <= known.__optional_keys__:
            name = next(name for name in options if name not in known.__optional_keys__)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        given = cls(**options)
        engine = given.engine
        if given.workspace_limit is not None:
            given = given._replace(workspace_limit=_whole(given.workspace_limit))
        return given._replace(engine=OLD_NAMES[engine]) if isinstance(engine, str) and engine in OLD_NAMES else given

    @property
    def key(self) -> tuple[Any, ...]:
        """A hashable key of these options, types included: 60 are bits and 60.0 is refused, but they compare equal.

        Empty where none is given, so that such calls take no time to make one. Options that are all given as their
        defaults have another key than that: equal ones may have two keys, but one key is of equal ones.
        """
        return () if self is NONE_GIVEN else (*self, *map(type, self))

    @property
    def made(self) -> list[str]:
        """Names of the options that are not at their defaults, but for those that may stand beside a plan."""
        chosen = zip(self._fields, self, NONE_GIVEN, strict=True)
        made = [name for name, x, default in chosen if type(x) is not type(default) or x != default]
        return [name for name in made if name not in ("dtype", "verify")]

    @property
    def by_slices(self) -> str | None:
        """The option that rules out the native product and words, which have no bits to rely on and no integer."""
        names = ("reproducible", self.reproducible), ("verify", self.verify), ("inner_scaling", self.inner_scaling)
        return next((name for name, given in names if given), None)

    @property
    def leave_slices(self) -> bool:
        """Whether the number of slices is left to the library."""
        words = isinstance(self.scheme, Words) or self.scheme in PRESETS
        return self.slices is None and not words

    def target(self, k: int) -> Accuracy | None:
        """The named accuracy for inner dimension k, shorthands spelled out; None if none is named."""
        if self.accuracy is None or isinstance(self.accuracy, Accuracy):
            return self.accuracy
        return Accuracy.of(self.accuracy, k)


def _whole(limit: Any) -> Any:
    """A limit as Python's integer, if it is a whole number, as 3e6; any other as it is, which `check_limit` refuses."""
    number = isinstance(limit, Real) and not isinstance(limit, bool)
    return int(limit) if number and limit % 1 == 0 else limit


NONE_GIVEN = Options()
"""The options of a call that gives none."""


# What readers of signatures see --------------------------------------------------------------------------------------


def takes(known: type[Any]) -> Callable[[_Function], _Function]:
    """Decorate a function with `**options: Unpack[known]`: `inspect.signature`, `help` and the site show each option.

    The function itself is returned, so a call costs nothing more.
    """
    options = [option for name, option in _SHOWN.items() if name in known.__optional_keys__]

    def decorate(function: _Function) -> _Function:
        function.__signature__ = spelled_out(inspect.signature(function), options)  # type: ignore[attr-defined]
        return function

    return decorate


_SHOWN = inspect.signature(Options).parameters


def spelled_out(signature: inspect.Signature, options: Iterable[inspect.Parameter]) -> inspect.Signature:
    """The signature of a function that takes `**options`, with these in place of them, before its other keywords."""
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    keywords = [each for each in own if each.kind is each.KEYWORD_ONLY]
    of_options = [option.replace(kind=option.KEYWORD_ONLY) for option in options]
    return signature.replace(parameters=[*(each for each in own if each not in keywords), *of_options, *keywords])
