"""The public functions, and what NumPy's and CuPy's functions become of them."""
