"""DTensors of PyTorch: placements as distributions, and products with the bits of one process."""

import numpy as np
import pytest
from launching import needs, with_gloo

import ozaki
from ozaki.distributed import Chunked, array
from ozaki.distributed.communicators.threads import run


def test_products_of_dtensors():
    needs("torch.distributed.tensor")
    for each in with_gloo("dtensors", 4):
        assert each is not None and "result" in each, each
        assert "planes" in each["result"]


def test_chunks_of_a_mesh():
    of = Chunked((2, 3), (1, 0))
    assert [of.place(rank) for rank in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert of.T.axes == (0, 1) and of.replica(5) == 0
    assert of.share((7, 5), 5, 6) == (range(6, 7), range(3, 5))
    copies = Chunked((2, 3), (None, 0))
    assert [copies.replica(rank) for rank in range(6)] == [0, 0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="for 6 processes, but there are 4"):
        of.check(4)
    with pytest.raises(ValueError, match="axes: "):
        Chunked((2,), (2,))


def test_a_shared_out_matrix_is_no_operand_of_one_process():
    def work(communicator):
        a = array(np.ones((2, 2)), Chunked((1,), (0,)), communicator)
        with pytest.raises(
            TypeError, match=r"shared out over processes; use ozaki\.distributed\.matmul, or a\.gather\(\)"
        ):
            ozaki.matmul(a, a)

    run(1, work)
