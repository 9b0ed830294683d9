// The products of words that a kernel is to add, as data.
#pragma once
#include "arithmetic/common.cuh"

constexpr int MOST = 64;  // pairs

// Groups of pairs: those before pair turn_end[t] belong to turn t, turns before group_end[g] to group g.
struct Program {
  int groups;
  int block;  // so many times 32 bytes of k after which the last group is promoted, or 0
  uint8_t left[MOST], right[MOST];
  uint8_t turn_end[MOST], group_end[MOST];
  uint8_t down[MOST];    // of turns: the accumulator is multiplied by 2^-down before; 0 of a group's first one
  uint8_t weight[MOST];  // of groups: the sum counts 2^-weight
};
