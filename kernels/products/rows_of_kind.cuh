// What digit_gemm_sm90.cu does where rows of A have digits of their own count, and results have 16 bits (with the macro
// FORMAT): it multiplies the rows of one kind, which stand in tiles one after the other (conversion/row_digits.cu), as
// many as device memory says, and stores each where it belongs.
#pragma once
#include "arithmetic/sixteen.cuh"
#include "products/ring_sm90.cuh"

// Matrix b has numbers[2 b] rows of the kind, on places 0, 1, ... of `places`, or (from_end) places - 1, places - 2, ...;
// row_of[b * mu_batch + place] is the row of C.
struct RowsOfKind {
  const uint32_t* numbers;
  const int32_t* row_of;
  int places, from_end;

  __device__ __forceinline__ int number(int entry) const {
    return static_cast<int>(*static_cast<const volatile uint32_t*>(numbers + 2 * entry));
  }
  __device__ __forceinline__ int pairs(int entry) const { return (number(entry) + 2 * ROWS - 1) / (2 * ROWS); }
  // The pair of tiles with the i-th 2 ROWS places.
  __device__ __forceinline__ int pair(int i) const { return from_end ? places / (2 * ROWS) - 1 - i : i; }
  __device__ __forceinline__ int first(int entry) const { return from_end ? places - number(entry) : 0; }
  __device__ __forceinline__ int last(int entry) const { return from_end ? places : number(entry); }
};

// Entry x (0 .. 7) of group z of 32 columns, of which the thread has 8 neighbours; h as of `accumulator` (pieces.cuh).
HD constexpr int accumulator_of_eight(int h, int z, int x) { return (z * 4 + x / 2) * 4 + h * 2 + x % 2; }
