"""Checked operands, arrays of all kinds alike, products and bounds inside of linear algebra."""
