"""Benchmarks: ours, native products and other libraries, on the same data in one run (`python -m benchmarks`)."""
