// The products of low-precision words that a kernel adds, and in which order, as data (docs/definitions.md, section 7).
#pragma once
#include "arithmetic/common.cuh"

constexpr int MOST = 64;  // pairs

// Pairs (left word, right word) in the order of multiplication. A group of pairs shares an accumulator; inside a group,
// the pairs of a turn take turns at each instruction's share of k. Pair p belongs to the first turn t with p <
// turn_end[t], turn t to the first group g with t < group_end[g].
struct Program {
  int groups;
  int block;  // units of 32 bytes of k after which the last group is promoted; 0: never
  uint8_t left[MOST], right[MOST];
  uint8_t turn_end[MOST], group_end[MOST];
  uint8_t down[MOST];    // of turns: the accumulator is multiplied by 2^-down before it; 0 for a group's first turn
  uint8_t weight[MOST];  // of groups: the group's sum counts 2^-weight
};
