"""Error bounds (B1 to B9) and estimates (E1 to E5), a function each; docs/bounds.md derives them.

All are relative to a measure and hold before the rounding to the output, unless a function says otherwise. The
floating-point rounding inside this package is covered by `rounding.UP`.

`description` is what the bounds know of an operand; `exact` has the bounds of digits and residues, `words` those of
low-precision words, `of_scheme` picks between these two, `native` has that of the array library's product, `rounding`
what the one rounding to the output adds; `levels` and `overlap` say what a device reads for B7 and E5; `estimates` says
what to expect of ordinary operands, and proves nothing.
"""
