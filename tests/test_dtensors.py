"""DTensors of PyTorch: placements as distributions, and products with the bits of one process."""

import pytest
from launching import needs, with_gloo

from ozaki.distributed import Chunked


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
