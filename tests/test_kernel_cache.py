"""Files of compiled kernels: whole or made anew, within a bound, while several processes use them."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest

from ozaki.backends.cupy.program import compiling, kernel_files

CUBIN = bytes(range(256)) * 4


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder of kernels."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_what_was_written_is_found():
    assert kernel_files.find("ozaki_x.cubin") is None
    path = kernel_files.write("ozaki_x.cubin", CUBIN)
    assert kernel_files.find("ozaki_x.cubin") == path
    assert path.read_bytes()[: len(CUBIN)] == CUBIN
    assert [file.path for file in kernel_files.files()] == [path]


def test_a_file_that_was_damaged_is_not_found():
    path = kernel_files.write("ozaki_x.cubin", CUBIN)
    whole = path.read_bytes()
    for length in (0, 1, 31, 32, 33, 500, len(CUBIN), len(whole) - 1):
        path.write_bytes(whole[:length])
        assert kernel_files.find(path.name) is None, length
    for at in (0, 700, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert kernel_files.find(path.name) is None, at
    path.write_bytes(CUBIN)  # as an earlier version wrote it
    assert kernel_files.find(path.name) is None


def test_files_that_were_used_longest_ago_go_first(folder, monkeypatch):
    monkeypatch.setattr(kernel_files, "MOST_BYTES", 3 * (len(CUBIN) + 32))
    (folder / "of_cupy.cubin").write_bytes(bytes(10**5))
    now = time.time()
    for i in range(5):
        os.utime(kernel_files.write(f"ozaki_{i}.cubin", CUBIN), (now, now - 1000 + i))
    assert kernel_files.find("ozaki_0.cubin")  # which is its last use
    kernel_files.trim()
    assert {file.path.name for file in kernel_files.files()} == {"ozaki_0.cubin", "ozaki_3.cubin", "ozaki_4.cubin"}
    assert (folder / "of_cupy.cubin").stat().st_size == 10**5


def test_files_that_killed_processes_left_are_removed(folder):
    kept, old = folder / "ozaki_a.part", folder / "ozaki_b.part"
    for path, age in ((kept, 60), (old, 10_000)):
        path.write_bytes(b"half")
        os.utime(path, (time.time(), time.time() - age))
    kernel_files.trim()
    assert kept.exists() and not old.exists()


@pytest.mark.parametrize("failing", ["makes no files", "full", "no folder"])
def test_a_folder_that_takes_no_file(folder, monkeypatch, failing):
    def fails(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if failing == "makes no files":
        monkeypatch.setattr(kernel_files, "NamedTemporaryFile", fails)
    elif failing == "full":
        monkeypatch.setattr(kernel_files, "sha256", fails)
    else:
        (folder / "file").touch()
        monkeypatch.setenv("CUPY_CACHE_DIR", str(folder / "file"))
    with pytest.raises(OSError, match="set CUPY_CACHE_DIR to a folder with room"):
        kernel_files.write("ozaki_x.cubin", CUBIN)
    assert {path.name for path in folder.iterdir()} <= {"file"}


_USER = """
import sys
from ozaki.backends.cupy.program import kernel_files
kernel_files.MOST_BYTES = 20_000
for i in range(150):
    name = f"ozaki_{i * int(sys.argv[1]) % 31}.cubin"
    content = name.encode() * 100
    path = kernel_files.find(name) or kernel_files.write(name, content)
    kernel_files.trim()
    try:
        assert path.read_bytes()[:-32] == content, name
    except FileNotFoundError:  # another process has removed it
        pass
"""


def test_several_processes_at_once():
    users = [subprocess.Popen([sys.executable, "-c", _USER, str(step)]) for step in (1, 7, 12)]
    assert [user.wait(60) for user in users] == [0, 0, 0]
    kernel_files.trim()
    found = kernel_files.files()
    assert len(found) > 3 and all(file.path.suffix == ".cubin" and kernel_files.find(file.path.name) for file in found)


class CUDADriverError(RuntimeError):
    """What CuPy raises for a file that does not load."""


@pytest.fixture
def compiler(monkeypatch):
    """A compiler and a driver in place of CUDA's: what was compiled, and the first bytes of files that do not load."""
    seen = SimpleNamespace(compiled=[], loaded=[], refused=set())

    class RawModule:
        def __init__(self, path):
            self.path = Path(path)

        def get_function(self, function):
            return self

        @property
        def kernel(self):
            if not self.path.exists() or self.path.read_bytes()[:3] in seen.refused:
                raise CUDADriverError
            seen.loaded.append(self.path)
            return self

    nvrtc = SimpleNamespace(
        getVersion=lambda: (13, 0),
        createProgram=lambda source, name, *_: name,
        compileProgram=lambda program, options: seen.compiled.append(program),
        getCUBIN=lambda program: f"{len(seen.compiled)}: {program}".encode(),
        destroyProgram=lambda program: None,
        NVRTCError=RuntimeError,
    )
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    cupy.RawModule, cupy.cuda, cuda.nvrtc = RawModule, cuda, nvrtc
    cuda.driver = SimpleNamespace(CUDADriverError=CUDADriverError)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setattr(compiling.devices, "numbered", lambda device: SimpleNamespace(architecture="sm_80"))
    forget()
    yield seen
    forget()


def forget():
    """What a process remembers of files is forgotten, as in a new process."""
    for function in (compiling._compiled, compiling._packed, compiling._function):
        function.cache_clear()


def load():
    """Load a kernel."""
    return compiling._function(0, "conversion/copy.cu", "copy", (("TYPE", "double"),))


def test_a_damaged_kernel_is_compiled_anew(compiler):
    path = load().path
    forget()
    assert load().path == path and len(compiler.compiled) == 1
    path.write_bytes(path.read_bytes()[:10])
    forget()
    assert load().path == path and len(compiler.compiled) == 2
    forget()
    assert load().path == path and len(compiler.compiled) == 2


def test_a_kernel_that_does_not_load_is_compiled_anew(compiler):
    """The driver refuses a file whose checksum is right: it is compiled once, and the new file takes its place."""
    path = load().path
    forget()
    compiler.refused.add(b"1: ")  # of the first compilation
    assert load().path == path and len(compiler.compiled) == 2
    assert path.read_bytes().startswith(b"2: ") and kernel_files.find(path.name) == path
    for _ in range(2):
        forget()
        assert load().path == path and len(compiler.compiled) == 2
    assert [file.path for file in kernel_files.files()] == [path]
    forget()
    compiler.refused |= {b"2: ", b"3: ", b"4: "}
    for compiled in (3, 4):  # what was just compiled is not compiled once more
        with pytest.raises(CUDADriverError):
            load()
        assert len(compiler.compiled) == compiled


def test_a_kernel_of_another_architecture_is_compiled_anew(compiler):
    """A file of the right name and checksum that holds another architecture's code, as a folder that was copied."""
    name = compiling._compiled_name("conversion/copy.cu", (("TYPE", "double"),), "sm_80")
    path = kernel_files.write(name, b"of sm_70")
    compiler.refused.add(b"of ")
    assert load().path == path and len(compiler.compiled) == 1
    assert path.read_bytes().startswith(b"1: ")


def test_a_packed_kernel_that_does_not_load_is_compiled(compiler):
    packed = kernel_files.write("ozaki_packed.cubin", b"packed, for newer drivers")
    with mock.patch.object(compiling, "_packed", return_value=packed):
        assert load().path == packed and not compiler.compiled
        compiling._function.cache_clear()
        compiler.refused.add(b"pac")
        for _ in range(2):
            assert load().path != packed and len(compiler.compiled) == 1
            compiling._function.cache_clear()
    assert packed.read_bytes().startswith(b"packed")


def test_a_kernel_that_was_removed_before_it_is_loaded_is_compiled_anew(compiler):
    path = compiling._file("conversion/copy.cu", (("TYPE", "double"),), "sm_80")
    path.unlink()
    assert load().path == path and len(compiler.compiled) == 2


def test_compiling_keeps_the_bound(compiler, monkeypatch):
    monkeypatch.setattr(kernel_files, "MOST_BYTES", 200)
    for i in range(10):
        compiling._compiled("conversion/copy.cu", (("I", i),), "sm_80")
    assert 0 < sum(file.nbytes for file in kernel_files.files()) <= 200
