"""Files are written whole or not at all; whatever goes wrong, the file that was there before is kept."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tiers import some_first
from typer.testing import CliRunner

import ozaki
from ozaki._cli.commands import app
from ozaki._cli.files import write

OZAKI = [sys.executable, "-m", "ozaki"]


@pytest.fixture(autouse=True)
def default_signals():
    """Signals end a program here and in programs started here, also where whoever started the tests ignores some.

    A script's background ignores SIGINT, and programs inherit what is ignored.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a matrix in x.npy whose square is in double.npy."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(5).standard_normal((100, 100))
    np.save("x.npy", x)
    np.save("double.npy", ozaki.matmul(x, x, reproducible=True))
    return tmp_path


def multiply(output, code=0):
    """Write the square of x.npy to a file; return what is printed on standard error."""
    done = CliRunner().invoke(app, ["multiply", "x.npy", "x.npy", "-o", str(output), "--reproducible"])
    assert done.exit_code == code, done.output
    return done.stderr


def limited(*words):
    """Run `ozaki` where no file may grow beyond 10 or 20 kB (`ulimit -f 20`, in units that depend on the shell)."""
    limit = ["sh", "-c", 'ulimit -f 20; exec "$@"', "sh"]
    return subprocess.run([*limit, *OZAKI, *words], capture_output=True, text=True, check=False)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", some_first(2, ["x.npy", "c.npz", "c.npy", "c.mtx", "c.mtx.gz"]))
def test_a_write_that_fails_changes_nothing(folder, name):
    before = content(folder)
    done = limited("multiply", "x.npy", "x.npy", "-o", name)
    assert done.returncode == 2
    assert done.stderr == f"error: {name}: File too large\n"
    assert content(folder) == before


def test_a_picture_that_cannot_be_written_changes_nothing(folder):
    (folder / "c.png").write_bytes(b"old")
    before = content(folder)
    done = limited("demo", "--size", "8", "--device", "cpu", "--plot", "c.png")
    assert done.returncode == 2
    # Matplotlib's first use on a machine also says that it cannot keep its list of fonts.
    assert done.stderr.splitlines()[-1] == "error: c.png: File too large"
    assert content(folder) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_during_the_write_changes_nothing(folder, number, code):
    np.save("column.npy", np.random.default_rng(6).standard_normal((2500, 1)))
    np.save("row.npy", np.random.default_rng(7).standard_normal((1, 2500)))
    (folder / "c.mtx").write_bytes(b"old")
    before = content(folder)
    words = [*OZAKI, "multiply", "column.npy", "row.npy", "-o", "c.mtx"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as running:
        while not (temporary := list(folder.glob(".ozaki-*"))) or temporary[0].stat().st_size == 0:
            assert running.poll() is None, "it ended before the signal came"
            time.sleep(0.005)
        running.send_signal(number)
        assert running.wait() == code
        assert running.stderr.read() == ("interrupted\n" if number == signal.SIGINT else "")
    left = content(folder).keys() - before.keys()
    assert (folder / "c.mtx").read_bytes() == b"old"
    assert len(left) == (0 if number == signal.SIGINT else 1)  # which says by its name that it is not whole


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_replaced_file_keeps_its_permissions(folder, mode):
    (folder / "c.npy").write_bytes(b"old")
    (folder / "c.npy").chmod(mode)
    multiply("c.npy")
    assert stat.S_IMODE((folder / "c.npy").stat().st_mode) == mode
    assert (folder / "c.npy").read_bytes() == (folder / "double.npy").read_bytes()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_new_file_has_the_permissions_that_the_umask_leaves(folder, mask):
    before = os.umask(mask)
    try:
        multiply("c.npy")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "c.npy").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("old", [b"old", None])
def test_a_symbolic_link_stays_and_what_it_leads_to_is_written(folder, old):
    (folder / "elsewhere").mkdir()
    (folder / "c.npy").symlink_to("d.npy")
    (folder / "d.npy").symlink_to("elsewhere/e.npy")
    if old is not None:
        (folder / "elsewhere" / "e.npy").write_bytes(old)
    multiply("c.npy")
    assert (folder / "c.npy").is_symlink() and (folder / "d.npy").is_symlink()
    assert content(folder / "elsewhere") == {"e.npy": (folder / "double.npy").read_bytes()}


def test_another_hard_link_keeps_the_old_content(folder):
    (folder / "other.npy").hardlink_to("x.npy")
    before = (folder / "x.npy").read_bytes()
    multiply("x.npy")
    assert (folder / "other.npy").read_bytes() == before
    assert (folder / "x.npy").read_bytes() == (folder / "double.npy").read_bytes()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mtx", ".mtx.gz"])
def test_a_pipe_is_written_directly(folder, suffix):
    os.mkfifo(f"c{suffix}")
    write(f"expected{suffix}", np.load("double.npy"))
    got = []
    reader = threading.Thread(target=lambda: got.append((folder / f"c{suffix}").read_bytes()))
    reader.start()
    multiply(f"c{suffix}")
    reader.join()
    assert stat.S_ISFIFO((folder / f"c{suffix}").stat().st_mode)
    if suffix == ".npz":  # zipped without going back, so with other bytes around the same array
        (folder / "got.npz").write_bytes(got[0])
        assert np.array_equal(np.load("got.npz")["c"], np.load("double.npy"))
    else:
        assert got == [(folder / f"expected{suffix}").read_bytes()]


def test_devices_are_written_directly(folder):
    (folder / "null.npy").symlink_to(os.devnull)
    multiply("null.npy")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    (folder / "full.npy").symlink_to("/dev/full")
    assert multiply("full.npy", code=2) == "error: full.npy: No space left on device\n"


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_standard_output_as_a_file(folder, mode):
    (folder / "out.npy").symlink_to("/dev/stdout")
    words = [*OZAKI, "multiply", "x.npy", "x.npy", "-o", "out.npy", "--reproducible"]
    done = subprocess.run(words, capture_output=True, check=True)
    assert done.stdout == (folder / "double.npy").read_bytes()
    with open("redirected", mode) as file:
        subprocess.run(words, stdout=file, check=True)
    assert (folder / "redirected").read_bytes() == (folder / "double.npy").read_bytes()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder.npy", "folder.npy: is a folder"),
        ("x.npy/c.npy", "x.npy/c.npy: no folder"),
        ("no/c.npy", "no/c.npy: no folder"),
        ("folder.npy/", "folder.npy/: is a folder"),
        ("y" * 300 + ".npy", "(304 characters): File name too long"),
        ("z/" * 3000 + ".npy.npy", "File name too long"),
        ("", "the name of a file is empty; expected one that ends with .npy"),
    ],
)
def test_a_name_that_cannot_be_written_is_found_before_the_work(folder, monkeypatch, name, reason):
    (folder / "folder.npy").mkdir()
    monkeypatch.setattr(ozaki, "matmul", None)
    printed = multiply(name, code=2)
    assert reason in printed
    assert printed.startswith("error: ") and printed.count("\n") == 1 and len(printed) < 1200


def test_a_current_folder_that_is_gone(folder):
    gone = folder / "gone"
    gone.mkdir()
    words = ["multiply", str(folder / "x.npy"), str(folder / "x.npy"), "-o", "c.npy"]
    script = ["bash", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone), *OZAKI, *words]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: c.npy: No such file or directory\n")


def test_a_folder_that_may_not_be_written_is_found_before_the_work(folder, monkeypatch):
    (folder / "shut").mkdir()
    (folder / "shut" / "c.npy").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda path, mode: str(path).endswith(".npy"))
    monkeypatch.setattr(ozaki, "matmul", None)
    assert "shut/c.npy: may not be written, for it is written beside its place first" in multiply("shut/c.npy", code=2)


LIMITED = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read and write everything")


@pytest.fixture
def shut(folder):
    """A folder that nobody may change, with files that all may write, that none may write, and that none may read."""
    (folder / "shut").mkdir()
    for name, mode in (("open.npy", 0o666), ("c.npy", 0o444), ("secret.npy", 0o000)):
        (folder / "shut" / name).write_bytes(b"old")
        (folder / "shut" / name).chmod(mode)
    (folder / "shut").chmod(0o555)
    yield
    (folder / "shut").chmod(0o755)


@LIMITED
@pytest.mark.usefixtures("shut")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shut/new.npy", "shut/new.npy: may not be written, for it is written beside its place first, in "),
        ("shut/open.npy", "shut/open.npy: may not be written, for it is written beside its place first, in "),
        ("shut/c.npy", "shut/c.npy: may not be written\n"),
    ],
)
def test_a_place_that_may_not_be_written_is_found_before_the_work(monkeypatch, name, reason):
    monkeypatch.setattr(ozaki, "matmul", None)
    assert reason in multiply(name, code=2)


@LIMITED
@pytest.mark.usefixtures("shut")
def test_a_file_that_may_not_be_read_is_named():
    done = CliRunner().invoke(app, ["verify", "shut/secret.npy", "shut/secret.npy"])
    assert (done.exit_code, done.stderr) == (2, "error: shut/secret.npy: Permission denied\n")
