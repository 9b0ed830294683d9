"""The engines of a GPU: a layout of slices, and what multiplies them."""
