"""Products on several GPUs of one process, or through one, of operands that need not fit it: `devices=` of `matmul`."""
