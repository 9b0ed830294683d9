"""Planning: which scheme runs, with how many slices, and what is proven of it."""
