"""Products by other libraries, timed next to ours; the user names the folders that hold the libraries."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cublas_peer import ROUTINE, EmulatedDgemm
from benchmarks.routines import Account, Routine

MODULI = {"float64": (14, 15), "float32": (7,), "shapes": (14,)}
"""Numbers of moduli for GEMMul8, in its accurate mode, by task."""


@dataclass(frozen=True)
class Peers:
    """The libraries to time next to ours; None for a library that is not there.

    Attributes
    ----------
    gemmul8 : what `load_gemmul8` returns
    cublas : emulated DGEMM, if a newer cuBLAS than CuPy's own is loaded
    """

    gemmul8: Any = None
    cublas: EmulatedDgemm | None = None

    def routines(self, task: str) -> list[Routine]:
        """The routines of these libraries for a task."""
        emulated = [_emulated(self.cublas)] if self.cublas is not None and task == "float64" else []
        moduli = MODULI.get(task, ()) if self.gemmul8 is not None else ()
        return [*emulated, *(_gemmul8(self.gemmul8, count) for count in moduli)]

    def versions(self, task: str) -> dict[str, str]:
        """The versions of libraries that have routines for a task, except those that `Device.versions` has."""
        return {"gemmul8": self.gemmul8.version} if self.gemmul8 is not None and task in MODULI else {}


def _gemmul8(gemmul8: Any, moduli: int) -> Routine:
    return Routine(
        f"GEMMul8 {moduli}",
        False,
        lambda a, b, out: gemmul8.matmul(a, b, moduli, out=out),
        lambda a, b: Account(None, moduli),
    )


def _emulated(cublas: EmulatedDgemm) -> Routine:
    return Routine(ROUTINE, False, cublas.multiply, lambda a, b: Account(None, 1))  # cuBLAS does not tell its products


def load_gemmul8(folder: Path) -> Any:
    """Import gemmul8.py from a folder that also holds its shared library, and load the library.

    Returns
    -------
    object
        Has `matmul(a, b, moduli, out)`, and `version`, the text that its rows show.

    Raises
    ------
    ImportError, OSError
        If it is missing, or does not load on this machine.
    ValueError
        If it does not tell its version.
    """
    sys.path.insert(0, str(folder.resolve()))
    try:
        gemmul8 = importlib.import_module("gemmul8").GEMMul8()
    finally:
        sys.path.pop(0)
    if not isinstance(getattr(gemmul8, "version", None), str):
        raise ValueError('GEMMul8 of gemmul8.py has no version; expected a text, as version = "3.0.5"')
    return gemmul8
