"""How kernels are compiled and launched, and what was launched is done again."""
