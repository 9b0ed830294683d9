"""MatrixMarket files; reading is strict: each number becomes the nearest float64, or an error says where it stands."""

from ozaki._cli.matrix_market.reading import read
from ozaki._cli.matrix_market.writing import write

__all__ = ["read", "write"]
