"""Products by others' libraries, timed next to ours; the user names the folders that hold them."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cublas_peer import ROUTINE, EmulatedDgemm
from benchmarks.routines import Account, Routine

MODULI = {"float64": (14, 15), "float32": (7,), "shapes": (14,)}
"""Of GEMMul8, in its accurate mode."""


@dataclass(frozen=True)
class Peers:
    """The libraries to time next to ours, None for each that is not there.

    Attributes
    ----------
    gemmul8 : what `load_gemmul8` returns
    cublas : of float64, where a newer cuBLAS than CuPy's own is loaded
    """

    gemmul8: Any = None
    cublas: EmulatedDgemm | None = None

    def routines(self, task: str) -> list[Routine]:
        """Their routines for a task."""
        emulated = [_emulated(self.cublas)] if self.cublas is not None and task == "float64" else []
        moduli = MODULI.get(task, ()) if self.gemmul8 is not None else ()
        return [*emulated, *(_gemmul8(self.gemmul8, count) for count in moduli)]

    def versions(self, task: str) -> dict[str, str]:
        """Their versions, of those that have routines for a task, without those that the device knows."""
        return {"gemmul8": self.gemmul8.version} if self.gemmul8 is not None and task in MODULI else {}


def _gemmul8(gemmul8: Any, moduli: int) -> Routine:
    return Routine(
        f"GEMMul8 {moduli}",
        False,
        lambda a, b, out: gemmul8.matmul(a, b, moduli, out=out),
        lambda a, b: Account(None, moduli),
    )


def _emulated(cublas: EmulatedDgemm) -> Routine:
    return Routine(ROUTINE, False, cublas.multiply, lambda a, b: Account(None, 1))  # of its products it tells nothing


def load_gemmul8(folder: Path) -> Any:
    """Import gemmul8.py from a folder that holds it and its shared library, and load that.

    Returns
    -------
    object
        With `matmul(a, b, moduli, out)`, and `version`, the text that its rows show.

    Raises
    ------
    ImportError, OSError
        Where it is not there, or does not load on this machine.
    ValueError
        Where it does not tell its version.
    """
    sys.path.insert(0, str(folder.resolve()))
    try:
        gemmul8 = importlib.import_module("gemmul8").GEMMul8()
    finally:
        sys.path.pop(0)
    if not isinstance(getattr(gemmul8, "version", None), str):
        raise ValueError('GEMMul8 of gemmul8.py has no version; expected a text, as version = "3.0.5"')
    return gemmul8
