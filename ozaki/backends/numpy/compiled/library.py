"""The compiled code for processors: which library of `ozaki/compiled/` this process takes, if any, or why none.

`building/compile_cpu.py` compiles `kernels/cpu/` into libraries with the same functions: "vnni" for processors of
x86-64 with AVX512-VNNI, "avxvnni" with AVX-VNNI, "neon" for those of AArch64 with int8 products, and "portable" for
all, which is slower than float64 BLAS and is taken only where `OZAKI_CPU` of the environment asks for it.
"""

from __future__ import annotations

import os
import struct
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path

from ozaki.backends.numpy.compiled.self_test import self_test
from ozaki.caches import cached

FOLDER = Path(__file__).parents[3] / "compiled"
"""Where the libraries are, in an installed package and in a checkout."""

_TITLES = {
    "vnni": "AVX512-VNNI",
    "avxvnni": "AVX-VNNI",
    "neon": "NEON with int8 products",
    "portable": "portable C++",
}

_FAST = ("vnni", "avxvnni", "neon")
"""Those that are taken by themselves, the fastest first."""

_CHOICES = (*_TITLES, "float64")
"""What `OZAKI_CPU` may be; "float64" takes no library."""

_REMEDY = "in a checkout, `make cpu` or `pip install .` compiles it where there is a C++ compiler"


@dataclass(frozen=True)
class Compiled:
    """A library that this processor runs.

    Attributes
    ----------
    name : of its instructions, as `OZAKI_CPU` names it
    library : its functions
    """

    name: str
    library: CDLL

    def __str__(self) -> str:
        """What multiplies, in words."""
        return f"{_TITLES[self.name]}, compiled"


@cached(1)
def compiled() -> Compiled | str:
    """The library that products take; if there is none, why, a line for each that was tried.

    `OZAKI_CPU` is read when this is first called, and after `ozaki.clear_caches()`; a library is tested then, too.

    Raises
    ------
    ValueError
        If `OZAKI_CPU` is none of its choices.
    """
    asked = os.environ.get("OZAKI_CPU", "")
    if asked == "float64":
        return "OZAKI_CPU=float64 in the environment asks for it"
    if asked and asked not in _CHOICES:
        raise ValueError(f"OZAKI_CPU: {asked!r} in the environment; expected one of {', '.join(_CHOICES)}")
    if asked:
        return _loaded(asked)
    reasons = []
    for name in _FAST:
        if (FOLDER / f"cpu_{name}.so").is_file():
            found = _loaded(name)
            if isinstance(found, Compiled):
                return found
            reasons.append(found)
    return "\n".join(reasons) or f"there is no compiled code for this processor: {_REMEDY}"


def _loaded(name: str) -> Compiled | str:
    """A library, once it is tested; why it is not used, if it is not."""
    path = FOLDER / f"cpu_{name}.so"
    if not path.is_file():
        return f"{path.name} is not there: {_REMEDY}"
    if not _is_whole(path):
        return f"{path.name} is not whole: {_REMEDY}"
    try:
        library = CDLL(str(path))
        if not runs_here(library):
            return f"this processor has no {_TITLES[name]}"
        failure = self_test(library)
    except (OSError, AttributeError) as error:  # what is no library, or one of another processor; a missing function
        failure = f"cannot be used ({error})"
    return Compiled(name, library) if failure is None else f"{path.name} {failure}: {_REMEDY}"


def _is_whole(path: Path) -> bool:
    """Whether a library of ELF is as long as its head says: reading beyond its end would end the process."""
    with path.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":  # of 64 bits, little-endian; `CDLL` refuses what is no library
        return True
    ((sections,), (size, count)) = struct.unpack_from("<Q", head, 0x28), struct.unpack_from("<HH", head, 0x3A)
    return bool(path.stat().st_size >= sections + size * count)


def runs_here(library: CDLL) -> bool:
    """Whether the processor has the instructions that a library was compiled for."""
    return bool(library.ozaki_cpu_runs_here())
