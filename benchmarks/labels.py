"""Names of routines in tables and figures: others' with their versions, ours as a caller asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.results import Row

LIBRARIES = {"cublas": "cuBLAS", "openblas": "OpenBLAS", "torch": "PyTorch"}
"""Names of libraries, as their makers spell them."""

CALLS = {
    "ozaki default": "ozaki, reproducible=True",
    "ozaki exact": 'ozaki, accuracy="exact"',
    "ozaki fastest": "ozaki, no accuracy named",
}
"""Labels of our routines that choose for themselves: what a caller writes to get them."""


def label(row: Row, versions: Mapping[str, str]) -> str:
    """The label of a row's routine, with the scheme that it chose, if it had a choice.

    Parameters
    ----------
    row : Row
    versions : versions of the run that the row belongs to

    Returns
    -------
    str
        Such as "cuBLAS 13.1.0 dgemm", "GEMMul8 2.0, 14 moduli", "ozaki, reproducible=True (14 residues)".
    """
    library, _, rest = row.routine.partition(" ")
    if row.ours:
        name = CALLS.get(row.routine, row.routine)
    elif library == "GEMMul8":
        name = f"GEMMul8 {versions['gemmul8']}, {rest} moduli"
    elif library in versions:
        name = f"{LIBRARIES.get(library, library)} {_numbers(versions[library])} {rest}"
    else:  # no library, such as a copy
        name = row.routine
    return f"{name} ({row.ran})" if row.ran else name


def _numbers(version: str) -> str:
    """The first three numbers of a version: "0.3.31" for "0.3.31.188.0 Haswell"."""
    return ".".join(version.partition(" ")[0].split(".")[:3])
