// Sums of products of bytes: the loop in which nearly all time is spent.
#pragma once

#include "vectors.h"

namespace cpu {

constexpr int LEFT_ROWS = 8, RIGHT_ROWS = 48;  // of a panel

#if defined(__AVX512VNNI__)

// Adds to `sums` the products of each row of the left panel and each row of the right one, whole panels of bytes, each
// of so many words along k. V vectors of the right panel are wanted.
//
// Sums of products of a signed and an unsigned byte fit int32 up to 16,447 words, with what they may begin with here.
template <int V>
OPERATION void add_panels(const int8_t* left, const int8_t* right, int64_t words, Ints (&sums)[LEFT_ROWS][V]) {
  for (int64_t h = 0; h < words; h++, left += 4 * LEFT_ROWS, right += 4 * RIGHT_ROWS) {
    Bytes bytes[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) bytes[v] = load<Bytes>(right + 64 * v);
#pragma GCC unroll 16
    for (int i = 0; i < LEFT_ROWS; i++) {
      int32_t word;
      memcpy(&word, left + 4 * i, 4);
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) add_dot_products(sums[i][v], bytes[v], word);
    }
  }
}

#else

// Adds the products of four rows of the left panel and of N registers of the right one, from the register `first` on:
// their sums fit registers. `step` vectors lie between the sums of two rows.
template <int N>
OPERATION void add_some(const int8_t* left, const int8_t* right, int64_t words, Ints* sums, int step, int first) {
  constexpr int ROWS = 4;
  RegisterOfInts of[ROWS][N] = {};
  for (int64_t h = 0; h < words; h++, left += 4 * LEFT_ROWS, right += 4 * RIGHT_ROWS) {
    RegisterOfBytes bytes[N];
#pragma GCC unroll 8
    for (int v = 0; v < N; v++) bytes[v] = load<RegisterOfBytes>(right + REGISTER * v);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
      int32_t word;
      memcpy(&word, left + 4 * i, 4);
      const RegisterOfInts of_row = word - RegisterOfInts{};
#pragma GCC unroll 8
      for (int v = 0; v < N; v++) of[i][v] = dot_product(of[i][v], bytes[v], of_row);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++) {
#pragma GCC unroll 8
    for (int v = 0; v < N; v++) {
      sums[i * step + (first + v) / Ints::PARTS].parts[(first + v) % Ints::PARTS] += of[i][v];
    }
  }
}

// As for longer registers, a block of rows and registers after the other.
template <int V>
OPERATION void add_panels(const int8_t* left, const int8_t* right, int64_t words, Ints (&sums)[LEFT_ROWS][V]) {
  constexpr int REGISTERS = V * Ints::PARTS, N = REGISTERS % MOST_REGISTERS == 0 ? MOST_REGISTERS : 2;
  for (int v = 0; v < REGISTERS; v += N) {
    for (int i = 0; i < LEFT_ROWS; i += 4) {
      add_some<N>(left + 4 * i, right + REGISTER * v, words, sums[i], V, v);
    }
  }
}

#endif

}  // namespace cpu
