"""CuPy: the arrows of a product on a GPU."""
