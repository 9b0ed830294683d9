"""How tables and figures name routines: those of others with their version, ours as a caller asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.results import Row

LIBRARIES = {"cublas": "cuBLAS", "openblas": "OpenBLAS"}
"""How the libraries spell themselves."""

CALLS = {"ozaki default": "ozaki, reproducible=True", "ozaki fastest": "ozaki, no accuracy named"}
"""What a caller writes to get these routines."""


def label(row: Row, versions: Mapping[str, str]) -> str:
    """The routine of a row, with what it chose where there was a choice.

    Parameters
    ----------
    row : Row
    versions : those of the run that the row is of

    Returns
    -------
    str
        As "cuBLAS 13.1.0 dgemm", "GEMMul8 2.0, 14 moduli", "ozaki, reproducible=True (14 residues)".
    """
    library, _, rest = row.routine.partition(" ")
    if row.ours:
        name = CALLS.get(row.routine, row.routine)
    elif library == "GEMMul8":
        name = f"GEMMul8 {versions['gemmul8']}, {rest} moduli"
    elif library in versions:
        name = f"{LIBRARIES.get(library, library)} {_numbers(versions[library])} {rest}"
    else:  # what no library does, as a copy
        name = row.routine
    return f"{name} ({row.ran})" if row.ran else name


def _numbers(version: str) -> str:
    """At most three numbers of a version, as 0.3.31 of "0.3.31.188.0 Haswell"."""
    return ".".join(version.partition(" ")[0].split(".")[:3])
