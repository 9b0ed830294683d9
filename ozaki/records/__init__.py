"""Plain data of a product: what is asked of it, what was planned, what is reported; no arrays."""
