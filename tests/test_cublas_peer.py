"""A newer cuBLAS beside CuPy's own: how it is found, loaded and called. A library built from C++ stands for it."""

import subprocess
import sys
from ctypes import c_char_p, c_int
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from shim import compiled, compiler

from benchmarks import __main__ as command_line
from benchmarks.cublas_peer import LIBRARIES, ROUTINE, EmulatedDgemm, libraries
from benchmarks.devices import Cpu, cublas_version
from benchmarks.measure import rows_of
from benchmarks.peers import Peers
from benchmarks.results import ROOT, Shape
from benchmarks.routines import routines

CUBLAS = r"""
#include <cstdio>
#include <cstring>

static char calls[1000];
static int context;

#define TELL(...) std::snprintf(calls + std::strlen(calls), sizeof calls - std::strlen(calls), __VA_ARGS__)

extern "C" {

int status = 0;

const char* told() { return calls; }

int cublasCreate_v2(void** handle) { *handle = &context; return status; }

int cublasGetVersion_v2(void* handle, int* version) { *version = 131000; return handle == &context ? 0 : 1; }

int cublasSetMathMode(void* handle, int mode) { TELL("math mode %d, ", mode); return handle == &context ? 0 : 1; }

int cublasSetEmulationStrategy(void* handle, int strategy) {
  TELL("strategy %d, ", strategy);
  return handle == &context ? 0 : 1;
}

int cublasSetStream_v2(void* handle, void* stream) { TELL("stream %p, ", stream); return handle == &context ? 0 : 1; }

int cublasSetWorkspace_v2(void* handle, void* workspace, size_t bytes) {
  TELL("workspace %p of %zu", workspace, bytes);
  return handle == &context ? 0 : 1;
}

int cublasDgemm_v2(
    void* handle, int op_a, int op_b, int m, int n, int k, const double* alpha, const double* a, int lda,
    const double* b, int ldb, const double* beta, double* c, int ldc) {
  if (handle != &context || op_a || op_b || *alpha != 1 || *beta != 0 || lda < m || ldb < k || ldc < m) return 7;
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) {
      c[i + j * ldc] = 0;
      for (int l = 0; l < k; ++l) c[i + j * ldc] += a[i + l * lda] * b[l + j * ldb];
    }
  return 0;
}

}
"""


def on_device(array):
    """A stand-in for a CuPy array, at the address of a NumPy array."""
    return SimpleNamespace(shape=array.shape, nbytes=array.nbytes, data=SimpleNamespace(ptr=array.ctypes.data))


@pytest.fixture
def library(tmp_path):
    return compiled(CUBLAS, tmp_path)


@pytest.mark.parametrize(("number", "text"), [(130100, "13.1.0"), (130201, "13.2.1"), (131000, "13.10.0")])
def test_a_version_is_spelt_as_its_three_numbers(number, text):
    assert cublas_version(number) == text


def test_the_libraries_are_looked_for_below_the_folder(tmp_path):
    inside = tmp_path / "nvidia" / "cu13" / "lib"
    inside.mkdir(parents=True)
    for name in (*LIBRARIES, "libnvblas.so.13"):
        (inside / name).touch()
    assert libraries(tmp_path) == [inside / "libcublasLt.so.13", inside / "libcublas.so.13"]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"libcublasLt\.so\.13: none; expected one below the folder"):
        libraries(tmp_path / "nowhere")
    (tmp_path / "libcublasLt.so.13").touch()
    with pytest.raises(FileNotFoundError, match=r"libcublas\.so\.13: none"):
        libraries(tmp_path)
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "libcublasLt.so.13").touch()
    with pytest.raises(FileNotFoundError, match=r"libcublasLt\.so\.13: .*, .*older.*; expected one"):
        libraries(tmp_path)


LOADED = """
import ctypes, pathlib, sys
from benchmarks.cublas_peer import load
cublas = load(pathlib.Path(sys.argv[1]))
assert ctypes.CDLL("libcublas.so.13")._handle == cublas._handle
print(cublas.version())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="libraries have other names")
def test_who_asks_for_cublas_by_name_gets_the_one_that_is_loaded(tmp_path):
    # In a process of its own: the present one may need the real cuBLAS of that name.
    folder = tmp_path / "lib"
    folder.mkdir()
    lt, cublas = LIBRARIES
    for name, source, needed in (
        (lt, "int version_of_lt() { return 131000; }", []),
        (cublas, "int version_of_lt(); int version() { return version_of_lt(); }", [str(folder / lt)]),
    ):
        (tmp_path / "source.c").write_text(source)
        options = ["-shared", "-fPIC", "-x", "c", str(tmp_path / "source.c"), "-x", "none", *needed]
        subprocess.run([compiler(), *options, f"-Wl,-soname,{name}", "-o", str(folder / name)], check=True)
    command = [sys.executable, "-c", LOADED, str(tmp_path)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout == "131000\n"


def test_a_folder_without_cublas_is_refused_by_the_option(tmp_path):
    with pytest.raises(typer.BadParameter, match=r"libcublasLt\.so\.13: none") as refused:
        command_line.main(cublas=tmp_path)
    assert refused.value.param_hint == "--cublas"


def test_the_handle_emulates_in_its_workspace(library):
    workspace = np.empty(4096, np.uint8)
    dgemm = EmulatedDgemm(library, 64, on_device(workspace))
    library.told.restype = c_char_p
    at = f"{workspace.ctypes.data:#x}"
    assert library.told().decode() == f"math mode 8, strategy 2, stream 0x40, workspace {at} of 4096"
    assert dgemm.version == "13.10.0"


def test_rows_times_columns(library, rng):
    a, b = rng.integers(-9, 10, (3, 5)).astype(float), rng.integers(-9, 10, (5, 2)).astype(float)
    out = np.full((3, 2), np.nan)
    dgemm = EmulatedDgemm(library, 0, on_device(np.empty(256, np.uint8)))
    dgemm.multiply(on_device(a), on_device(b), on_device(out))
    assert np.array_equal(out, a @ b)


def test_what_cublas_refuses_is_an_error(library):
    c_int.in_dll(library, "status").value = 15
    with pytest.raises(RuntimeError, match="cublasCreate_v2 returned the cublasStatus_t 15"):
        EmulatedDgemm(library, 0, on_device(np.empty(256, np.uint8)))


def test_emulation_is_timed_in_float64():
    peers = Peers(cublas=SimpleNamespace(multiply=lambda a, b, out: np.matmul(a, b, out=out)))
    *_, peer = routines("float64", np, "cublas", peers.routines("float64"))
    (row,) = rows_of("float64", "float64", Cpu(), Shape.square(20), [peer], seed=0, min_seconds=0)
    assert (row.routine, row.ours, row.bound, row.products) == (ROUTINE, False, None, 1)
    assert peers.routines("float32") == peers.routines("shapes") == []


@pytest.mark.parametrize("own", ["13.1.0", "13.10.0"])
def test_cupy_has_to_run_the_same_cublas(monkeypatch, own):
    emulated = SimpleNamespace(version="13.10.0")
    monkeypatch.setattr(EmulatedDgemm, "on_device", lambda library: emulated)
    device = SimpleNamespace(xp=SimpleNamespace(__name__="cupy"), versions=lambda: {"cublas": own})
    if own == emulated.version:
        assert command_line._peers(None, object(), device, None) == Peers(None, emulated)
    else:
        with pytest.raises(typer.BadParameter, match=r"loaded cuBLAS 13\.10\.0, but CuPy runs 13\.1\.0"):
            command_line._peers(None, object(), device, None)
