"""The CuPy backend: products on a GPU."""
