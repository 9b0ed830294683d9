"""The model of many GPUs: what it can be checked against without them, and its page."""

from math import prod

import launching
import pytest

from benchmarks import distributed as processes
from benchmarks import gpu_model as model
from benchmarks import many_gpus, several_devices
from ozaki import distributed
from ozaki.distributed import BlockNonCyclic, ProcessGrid, Slab
from ozaki.distributed.communicators.threads import run
from ozaki.distributed.sharing import Sharing, shared_out


def test_the_page_has_the_tables_of_the_model():
    text = many_gpus.DOCUMENT.read_text(encoding="utf-8")
    assert many_gpus.with_tables(text) == text, "run `python -m benchmarks.many_gpus`"


@pytest.mark.parametrize("device", model.SPEEDS)
def test_one_gpu_takes_as_long_as_measured(device):
    for n, seconds in model.measured(device).items():
        if n >= 2048:
            found = model.on_one((n, n, n), model.kernels(device, n >= many_gpus.WINOGRAD_FROM))
            assert found == pytest.approx(seconds, rel=0.08)


@pytest.mark.parametrize(("size", "grid"), [(2, (1, 2)), (2, (2, 1)), (3, (3, 1)), (4, (2, 2)), (6, (2, 3))])
def test_processes_receive_the_bytes_of_the_model(rng, size, grid):
    m, k, n = shape = 24, 40, 36
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))

    def product(communicator):
        x, y = (distributed.share_of(each, of, communicator) for each, of in zip((a, b), (Slab.X, Slab.Y), strict=True))
        of = ProcessGrid(grid)
        return distributed.matmul(x, y, BlockNonCyclic(of), grid=of, scheme="residues", slices=14, return_report=True)[
            1
        ]

    report = run(size, product)[0]
    sharing = Sharing(shape, ProcessGrid(grid))
    for host in (1, 2, size):
        expected = [model.received(sharing, rank, host) for rank in range(size)]
        assert [each.received for each in report.processes] == [each.near + each.far for each in expected]
    assert all(each.far == 0 for each in expected)


def test_processes_are_timed_beside_one(monkeypatch):
    launching.needs("torch.distributed")
    monkeypatch.setattr(processes, "COUNTS", (1, 2))
    rows = processes.of_kind("same product", 40, 1)
    assert [(row["processes"], row["m"]) for row in rows] == [(1, 40), (2, 40)]
    assert rows[0]["hash"] == rows[1]["hash"] and rows[1]["received"] == rows[1]["model"] == [6400, 6400]
    assert all(row["seconds"] > 0 and row["computing"] > 0 for row in rows)


def test_measured_bytes_are_those_of_the_model():
    (result,) = many_gpus.newest_of_devices(processes.FOLDER)
    assert len(result["rows"]) == 6 and all(row["received"] == row["model"] for row in result["rows"])


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_what_a_process_takes_is_what_its_tile_needs(layers):
    sharing = Sharing((100, 64, 60), ProcessGrid((2, 4)), layers, blocks=(2, 3))
    for rank in range(sharing.size):
        found = model.received(sharing, rank, 4)
        (rows, cols), inner = sharing.tile(rank), len(sharing.inner(rank))
        assert found.own + found.near + found.far == 8 * (3 * len(rows) + 2 * len(cols)) * inner
        assert min(found.own, found.near, found.far) >= 0


def test_everything_adds_up():
    shape = (65536,) * 3
    for size in (1, 2, 8, 64):
        found = model.predict(shape, size)
        assert found.apart >= found.seconds >= max(found.compute, found.move)
        assert found.multiply * size * model.kernels().operations == pytest.approx(28 * prod(shape))
        assert found.held <= model.MEMORY * model.LARGEST_PART
        assert found.tflops * found.seconds == pytest.approx(2e-12 * prod(shape))
    assert found.limit == "InfiniBand" and found.needed > model.INFINIBAND
    assert model.predict(shape, 2).limit == "products" and model.predict(shape, 2).needed < model.NVLINK


def test_operands_that_do_not_fit_come_from_the_hosts():
    large = model.predict((262144,) * 3, 8)
    assert large.from_host and large.pcie > 0 == large.nvlink
    assert not model.predict((262144,) * 3, 64).from_host


def test_fewer_layers_where_c_is_large():
    many, few = (
        [model.predict(shape, 64, shared_out(shape, 64, layers=each)).seconds for each in (1, 32)]
        for shape in many_gpus.OF_LAYERS
    )
    assert many[1] < many[0] and few[0] < few[1]


def test_devices_share_out_products():
    one, two, four = (model.on_devices(32768, count, model.kernels(), 8192, 8192) for count in (1, 2, 4))
    assert one.shared == one.on_first == one.compute
    assert one.compute > two.shared > one.compute / 2 and two.shared > four.shared > one.compute / 4
    assert all(each.on_first > each.shared for each in (two, four))


def test_devices_take_as_long_as_measured():
    for result in many_gpus.newest_of_devices(several_devices.FOLDER):
        assert result["device"] == model.DEVICE and result["n"] == many_gpus.STRIPS
        found = {(row["devices"], row["of"]): row["seconds"] for row in result["rows"]}
        for count in {count for count, _ in found}:
            shared, on_first = model.of_devices(result["n"], count)
            assert found[count, "shared out"] == pytest.approx(shared, rel=0.05)
            assert found[count, "all on the first"] == pytest.approx(on_first, rel=0.05)


def test_a_stale_page_fails_the_check(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- {name}:begin -->\n<!-- {name}:end -->\n" for name in many_gpus.TABLES))
    monkeypatch.setattr(many_gpus, "DOCUMENT", page)
    with pytest.raises(many_gpus.typer.Exit):
        many_gpus.main(check=True)
    assert "stale" in capsys.readouterr().err
    many_gpus.main()
    many_gpus.main(check=True)
    assert all(f"<!-- {name}:begin -->\n\n| " in page.read_text() for name in many_gpus.TABLES)
