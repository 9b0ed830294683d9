// The order in which a kernel goes through k, and what of it shared memory holds (docs/design.md, section 10).
//
// Macros: PROGRAM: the value of a Program; HELD: units of k that are held at a time.
#pragma once
#include "words/word_program.cuh"

__device__ constexpr Program program = PROGRAM;
constexpr int TURNS = program.group_end[program.groups - 1];
constexpr bool PROMOTED = program.block > 0;  // the last group
HD constexpr int group_begin(int group) { return group > 0 ? program.group_end[group - 1] : 0; }
HD constexpr int turn_begin(int turn) { return turn > 0 ? program.turn_end[turn - 1] : 0; }
HD constexpr bool takes(const uint8_t (&words)[MOST], int turn, int word) {
  for (int pair = turn_begin(turn); pair < program.turn_end[turn]; ++pair)
    if (words[pair] == word) return true;
  return false;
}
// Whether blocks of the last group are short, so that several may be held at a time, and whether what is held always is
// for all turns that there are.
constexpr bool SHORT = PROMOTED && program.block <= HELD, AT_ONCE = program.groups == 1 && (TURNS == 1 || SHORT);
// Whether accumulators are cleared where a block begins, which then costs nothing, instead of where they are over.
constexpr bool CLEARED_FIRST = SHORT && program.groups == 1;
// Units of k that are held at a time, and that a turn most often goes through.
constexpr int SPAN = SHORT ? HELD - HELD % program.block : HELD;
constexpr int AT_A_TIME = CLEARED_FIRST ? program.block : HELD;

// What shared memory holds at a time: units of k, for turns of a group.
struct Part {
  int group, turn, end;  // the turns, the last one excluded
  int first, last;       // units
  int block;             // where that begins which `first` is of

  __device__ __forceinline__ bool promoted() const { return PROMOTED && group + 1 == program.groups; }
  __device__ __forceinline__ bool of_short_blocks() const { return SHORT && promoted(); }
  __device__ __forceinline__ bool for_group() const {
    return AT_ONCE || of_short_blocks() || program.group_end[group] - group_begin(group) == 1;
  }
  // Where the block ends; a group that is not promoted has but one.
  __device__ __forceinline__ int block_end(int units) const {
    return promoted() ? smaller(block + program.block, units) : units;
  }
  // From `first` and `turn` on.
  __device__ __forceinline__ void begin(int units) {
    end = for_group() ? program.group_end[group] : turn + 1;
    last = of_short_blocks() ? smaller(first + SPAN, units) : smaller(first + HELD, block_end(units));
  }
  // The one that follows; its group is program.groups where there is none.
  __device__ __forceinline__ Part next(int units) const {
    Part part = *this;
    const bool over = of_short_blocks() || last == block_end(units);
    part.first = last;
    if (!for_group() && over && end < program.group_end[group]) {  // the same block again
      part.turn = end;
      part.first = block;
    } else if (last < units) {
      if (over) part.block = last, part.turn = group_begin(group);
    } else {
      part.group = group + 1, part.first = part.last = part.block = 0, part.turn = program.group_end[group];
      if (part.group == program.groups) return part;
    }
    part.begin(units);
    return part;
  }
  __device__ __forceinline__ bool has(int t) const { return AT_ONCE || (turn <= t && t < end); }
  __device__ __forceinline__ bool needs(const uint8_t (&words)[MOST], int word) const {
    bool needed = false;
#pragma unroll
    for (int t = 0; t < TURNS; ++t) needed = needed || (has(t) && takes(words, t, word));
    return needed;
  }
};
