"""Benchmarks of this library, native products and other libraries, on the same data (`python -m benchmarks`)."""
