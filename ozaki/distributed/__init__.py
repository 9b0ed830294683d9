"""Products of matrices that are shared out over processes, with the bits of one process."""
