"""Benchmarks: ours beside the native product and GEMMul8, on the same data in one run (`python -m benchmarks`)."""
