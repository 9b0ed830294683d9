"""Error bounds (B1 to B6, B8 to B10, B13) and estimates (E1 to E5); docs/bounds.md derives them.

B7 is a comparison that backends make, and planning takes the bound from it (`planning/proof.py`). The factor of B11, of
complex products, is in `records/shapes.py`.

All are relative to a measure and hold before the rounding to the output, unless a function says otherwise. The
floating-point rounding inside this package is covered by `rounding.UP`.

`description` is what the bounds know of an operand; `exact` has the bounds of digits and residues for these operands,
`a_priori` that for any operands and the estimates, which prove nothing; `words` has the bounds of low-precision words,
`of_scheme` picks between these two kinds; `native` has that of the array library's product, `relative` that of each
entry relative to itself, `rounding` what the one rounding to the output adds; `levels` and `overlap` say what a device
reads for B7 and E5.
"""
