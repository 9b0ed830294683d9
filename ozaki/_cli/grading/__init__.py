"""Grades of the accuracy of products, by the tests of "How to grade the accuracy of the BLAS" (arXiv 2609.12307).

`inputs.py` makes the operands, `ways.py` multiplies them, `measuring.py` measures errors against exact entries,
`grading.py` says what these show, `showing.py` prints it. docs/how_to/grade_a_product.md describes the tests.
"""
