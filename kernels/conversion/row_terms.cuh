// What the rows of an operand contribute to the errors of entries (docs/bounds.md, B1, B13, B14).
#pragma once
#include "arithmetic/common.cuh"

// Terms of the rows of an operand: term t of row r at terms[t * count + r], r = b * batch + row of a matrix.
struct RowTerms {
  const double* terms;
  const int64_t* units;
  int64_t count, batch;
};
