"""A model of float64 products on many GPUs: seconds and bytes of each part, from shapes and measured constants.

docs/explanation/many_gpus.md explains it, and `benchmarks.many_gpus` writes its tables there. Nothing runs here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from benchmarks.results import RESULTS, Row, read
from ozaki.devices.blocks import LARGEST
from ozaki.distributed.layouts import part_of
from ozaki.distributed.sharing import Sharing, Work, shared_out, within

Shape = tuple[int, int, int]
"""(m, k, n)."""

RESIDUES, ELEMENT = 14, 8
"""Residues of a float64 product, each a byte of an element, and bytes of a float64 number."""

WORK = Work(ELEMENT, RESIDUES, RESIDUES)
"""What kernels ask of a GPU: a byte a residue, for an entry of the un-rounded product and for an element's slices."""


# Constants ------------------------------------------------------------------------------------------------------------

SPEEDS = {
    "NVIDIA H200": "2026-11-24-2356-nvidia-h200-float64.json",
    "NVIDIA H100 80GB HBM3": "2026-11-25-2204-nvidia-h100-80gb-hbm3-float64.json",
}
"""Measured times of whole products, in benchmarks/results/, by device."""

FILES = {
    "NVIDIA H200": "2026-11-25-1240-nvidia-h200-kernels.json",
    "NVIDIA H100 80GB HBM3": "2026-11-25-0931-nvidia-h100-80gb-hbm3-kernels.json",
}
"""Measured times of kernels, in benchmarks/results/, by device."""

SIZE = 16384
"""The size at which they were measured."""

DEVICE = "NVIDIA H200"
"""The device of the tables."""

MEMORY, LARGEST_PART = 141e9, 0.9
"""Bytes of memory of an H200 (NVIDIA's data sheet), and the part of it that a product may take: an assumption."""

HOST = 8
"""GPUs of a host: DGX H100 and H200."""

NVLINK = 225e9
"""Bytes a second that a GPU receives from others of its host: NCCL's all-gather of 64 MiB a rank on two H100 (NV18);
254e9 with 256 MiB."""

PEER = 390e9
"""Bytes a second that copy engines bring from another GPU of the process: 396e9 between two H200, both ways at once
782e9; 225e9 and more between two H100."""

INFINIBAND = 50e9
"""Bytes a second of a GPU from other hosts: nominal, 400 Gbit/s each (NVIDIA DGX BasePOD reference architecture, core
components: eight ConnectX-7 for eight GPUs). To be measured."""

PCIE = 55e9
"""Bytes a second from pinned memory of a host to an H200, or back (benchmarks/host_operands.py); both at once 101e9.
Eight threads that fill pinned memory from other memory reach 35e9 to 45e9, on 16 processors."""

MESSAGE = 10e-6
"""Seconds to post a message: an assumption. To be measured."""


@dataclass(frozen=True)
class Kernels:
    """How fast one GPU does each part.

    Attributes
    ----------
    describe, split : seconds for an element of an operand, the mean of rows and columns
    operations : of slice products in a second; those that Strassen-Winograd spares count, too
    recombine : seconds for an entry of the result
    copy : bytes in a second, read and written
    """

    describe: float
    split: float
    operations: float
    recombine: float
    copy: float

    @property
    def add(self) -> float:
        """Seconds to add another part of k to an entry: bytes read twice and written, at copy bandwidth."""
        return 3 * RESIDUES / self.copy


def kernels(device: str = DEVICE, winograd: bool = False) -> Kernels:
    """The measured speed of a device's kernels of 14 residues; with `winograd` those of Strassen-Winograd."""
    rows = {row.routine: row for row in read(RESULTS / FILES[device]).rows if (row.n, row.dtype) == (SIZE, "float64")}
    of, by = (" quadrants", ", Strassen-Winograd") if winograd else ("", "")
    name = f"residues {RESIDUES}"
    recombine = rows[f"recombine{of}, {name}"]
    assert recombine.bytes is not None and recombine.of_copy is not None
    tflops = rows[f"residue_gemm_sm90, {name}{by}"].tflops
    assert tflops is not None
    return Kernels(
        describe=_mean(rows["describe rows"], rows["describe columns"]),
        split=_mean(rows[f"split{of} rows, {name}"], rows[f"split{of} columns, {name}"]),
        operations=1e12 * tflops,
        recombine=recombine.seconds / SIZE**2,
        copy=recombine.bytes / recombine.seconds / recombine.of_copy,
    )


def _mean(rows: Row, columns: Row) -> float:
    return (rows.seconds + columns.seconds) / 2 / SIZE**2


def measured(device: str = DEVICE) -> dict[int, float]:
    """Seconds that products of 14 residues took on one GPU, by n."""
    return {
        row.n: row.seconds for row in read(RESULTS / SPEEDS[device]).rows if row.routine == f"ozaki residues {RESIDUES}"
    }


def on_one(shape: Shape, of: Kernels) -> float:
    """Seconds of a whole product on one GPU, operands and result in its memory."""
    m, k, n = shape
    of_operands = (m + n) * k * (of.describe + of.split)
    return of_operands + 2 * RESIDUES * m * k * n / of.operations + m * n * of.recombine


# Bytes ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Received:
    """Bytes of operands that the busiest process takes, by where they lay. A is shared out by rows, B by columns.

    Attributes
    ----------
    own : that it has itself
    near : of other processes of its host
    far : of other hosts
    """

    own: int
    near: int
    far: int


def received(sharing: Sharing, rank: int, host: int = HOST) -> Received:
    """What a process takes of the operands; the panels are sent once for each block of its tile."""
    (m, _, n), (rows, cols), inner = sharing.shape, sharing.tile(rank), len(sharing.inner(rank))
    first = rank // host * host
    neighbours = range(first, min(first + host, sharing.size))
    own = near = total = 0
    for extent, wanted, times in ((m, rows, sharing.blocks[1]), (n, cols, sharing.blocks[0])):
        mine = part_of(extent, rank, sharing.size)
        of_host = range(
            part_of(extent, neighbours[0], sharing.size).start, part_of(extent, neighbours[-1], sharing.size).stop
        )
        own += times * inner * _common(wanted, mine)
        near += times * inner * _common(wanted, of_host)
        total += times * inner * len(wanted)
    return Received(ELEMENT * own, ELEMENT * (near - own), ELEMENT * (total - near))


def _common(a: range, b: range) -> int:
    return max(min(a.stop, b.stop) - max(a.start, b.start), 0)


# Many GPUs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """What a product takes on many GPUs, each a process.

    Attributes
    ----------
    sharing : who computes what
    held : most bytes of a GPU's memory
    from_host : whether operands and result lie in memory of the hosts, since those of the GPUs do not hold them
    describe, split, multiply, add, recombine : seconds of a GPU
    nvlink, infiniband, pcie, messages : seconds to move panels, by what moves them, and to post their messages
    panels : number of panels that arrive, one while another is multiplied
    merge, layers : seconds to merge descriptions, and to exchange and to add what layers have: beside nothing else
    """

    sharing: Sharing
    held: float
    from_host: bool
    describe: float
    split: float
    multiply: float
    add: float
    recombine: float
    nvlink: float
    infiniband: float
    pcie: float
    messages: float
    panels: int
    merge: float
    layers: float

    @property
    def compute(self) -> float:
        return self.describe + self.split + self.multiply + self.add + self.recombine

    @property
    def move(self) -> float:
        """Seconds of the slowest of what moves the panels: they work at the same time."""
        return max(self.nvlink, self.infiniband, self.pcie) + self.messages

    @property
    def seconds(self) -> float:
        """If a panel arrives while another is multiplied: but not the first, and the last one is multiplied alone."""
        compute, move = self.compute, self.move
        return max(compute + move / self.panels, move + compute / self.panels) + self.merge + self.layers

    @property
    def apart(self) -> float:
        """If nothing overlaps."""
        return self.compute + self.move + self.merge + self.layers

    @property
    def tflops(self) -> float:
        m, k, n = self.sharing.shape
        return 2e-12 * m * k * n / self.seconds

    @property
    def limit(self) -> str:
        """What takes most of the time; where moving takes longer than computing, what moves."""
        moves = {"NVLink": self.nvlink, "InfiniBand": self.infiniband, "PCIe": self.pcie, "messages": self.messages}
        computes = {"products": self.multiply, "splits": self.describe + self.split, "layers": self.layers}
        of = moves if self.move > self.compute else computes
        return max(of, key=lambda name: of[name])

    @property
    def needed(self) -> float:
        """Bytes a second at which panels take as long to arrive as to be multiplied: slower links are not hidden."""
        return max(self.nvlink * NVLINK, self.infiniband * INFINIBAND, self.pcie * PCIE) / self.compute


def predict(shape: Shape, size: int, sharing: Sharing | None = None, of: Kernels | None = None) -> Prediction:
    """The prediction for so many GPUs, by the sharing that the library chooses, or another one."""
    m, k, n = shape
    of = of or kernels()
    shares = ELEMENT * (m * k + k * n + m * n) / size
    usable = MEMORY * LARGEST_PART
    whole = sharing or shared_out(shape, size)
    try:
        found, from_host = within(whole, WORK, max(int(usable - shares), 0)), False
    except ValueError:
        found, from_host = within(whole, WORK, int(usable)), True
    rows, cols = (ceil(extent / parts) for extent, parts in zip((m, n), found.grid.shape, strict=True))
    entries, inner = rows * cols, ceil(k / found.layers)
    blocks = found.blocks[0] * found.blocks[1]
    sliced = (found.blocks[1] * rows + found.blocks[0] * cols) * inner
    taken = [received(found, rank) for rank in range(size)]
    near, far = max(each.near for each in taken), max(each.far for each in taken)
    # A panel has rows of so many owners, and columns of so many.
    owners = size / found.grid.shape[0] + size / found.grid.shape[1] if size > 1 else 0
    between = NVLINK if size <= HOST else INFINIBAND
    of_layers = (found.layers - 1) / found.layers * entries
    return Prediction(
        sharing=found,
        held=found.bytes_held(WORK) + (0 if from_host else shares),
        from_host=from_host,
        describe=(m + n) * k / size * of.describe,
        split=sliced * of.split,
        multiply=2 * RESIDUES * entries * inner / of.operations,
        add=(found.panels() - 1) * entries * of.add,
        recombine=entries / found.layers * of.recombine,
        nvlink=0 if from_host else near / NVLINK,
        infiniband=far / INFINIBAND,
        pcie=ELEMENT * sliced / PCIE if from_host else 0,
        messages=owners * blocks * found.panels() * MESSAGE,
        panels=found.panels() * blocks,
        # Two all-reductions of two and four numbers of 8 bytes a row; each number is sent twice around a ring.
        merge=2 * 6 * 8 * (m + n) / between if size > 1 else 0,
        layers=of_layers * (RESIDUES / between + of.add),
    )


# One process, all GPUs of its host ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnDevices:
    """A product on the GPUs of one process, n x n, each with its strips of rows of A and C and of columns of B.

    Attributes
    ----------
    compute : seconds of a GPU
    move : seconds in which the other strips of B arrive, while a GPU multiplies by its own
    sends : seconds in which the first GPU sends operands and receives the result, if all lie there
    edges : seconds of these in which another GPU computes nothing: its first rows and columns, its last block of C
    """

    n: int
    compute: float
    move: float
    sends: float
    edges: float

    @property
    def shared(self) -> float:
        """Seconds if operands and result are shared out."""
        return max(self.compute, self.move)

    @property
    def on_first(self) -> float:
        """Seconds if operands and result lie on the first GPU."""
        return max(self.compute, self.sends) + self.edges


def on_devices(n: int, count: int, of: Kernels, rows: int, columns: int) -> OnDevices:
    """The prediction for `devices=`, in blocks of so many rows and columns; every GPU splits all of B once.

    Where everything lies on the first GPU, each other one takes other columns of B from it, and the rest from the
    others: the first sends about one B in all.
    """
    strip = ceil(n / count)
    others = count - 1
    rows, columns = min(rows, strip), min(columns, n)
    compute = (strip + n) * n * (of.describe + of.split) + 2 * RESIDUES * strip * n * n / of.operations
    return OnDevices(
        n,
        compute + strip * n * of.recombine,
        others / count * n * n * ELEMENT / PEER,
        (others * strip * n + min(others, 1) * n * n) * ELEMENT / PEER,
        others * ((rows + columns) * n + rows * columns) * ELEMENT / PEER,
    )


WINOGRAD_FROM = 8192
"""Least rows, inner indices and columns of Strassen-Winograd."""


def of_devices(n: int, count: int) -> tuple[float, float]:
    """Seconds with operands and result shared out, and with all of them on the first GPU, in blocks as they are."""
    rows, columns = LARGEST["device"]
    winograd = min(rows, columns, ceil(n / count)) >= WINOGRAD_FROM
    found = on_devices(n, count, kernels(winograd=winograd), rows, columns)
    return found.shared, found.on_first
