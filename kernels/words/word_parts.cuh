// The order in which word_mma.cu goes through k, and which part of it shared memory holds at a time
// (docs/definitions.md, section 7).
//
// Macros: PROGRAM: the value of a Program; HELD: units of k (32 bytes of a row) that shared memory holds at a time.
#pragma once
#include "words/word_program.cuh"

__device__ constexpr Program program = PROGRAM;
constexpr int TURNS = program.group_end[program.groups - 1];
constexpr bool PROMOTED = program.block > 0;  // the last group is promoted block by block
// The first turn of a group, and the first pair of a turn.
HD constexpr int group_begin(int group) { return group > 0 ? program.group_end[group - 1] : 0; }
HD constexpr int turn_begin(int turn) { return turn > 0 ? program.turn_end[turn - 1] : 0; }
// Whether a pair of this turn needs this word (`words`: of the left or of the right operand).
HD constexpr bool takes(const uint8_t (&words)[MOST], int turn, int word) {
  for (int pair = turn_begin(turn); pair < program.turn_end[turn]; ++pair)
    if (words[pair] == word) return true;
  return false;
}
// SHORT: blocks of the promoted group are so short that shared memory holds several. AT_ONCE: what shared memory holds
// always serves all turns of the program.
constexpr bool SHORT = PROMOTED && program.block <= HELD, AT_ONCE = program.groups == 1 && (TURNS == 1 || SHORT);
// Accumulators are cleared where a block begins (which then costs nothing), not where the block before is finished.
constexpr bool CLEARED_FIRST = SHORT && program.groups == 1;
// SPAN: units of k held at a time, whole blocks of them if SHORT. AT_A_TIME: units that a turn most often goes through.
constexpr int SPAN = SHORT ? HELD - HELD % program.block : HELD;
constexpr int AT_A_TIME = CLEARED_FIRST ? program.block : HELD;

// One filling of shared memory: units first .. last - 1 of k, for turns turn .. end - 1 of a group. The parts of a
// program follow one another: next() gives the next one.
struct Part {
  int group, turn, end;  // turns turn .. end - 1 of the group
  int first, last;       // units first .. last - 1 of k
  int block;             // the unit where the block begins that `first` belongs to

  // Whether it belongs to the promoted group; and whether it holds whole blocks of it.
  __device__ __forceinline__ bool promoted() const { return PROMOTED && group + 1 == program.groups; }
  __device__ __forceinline__ bool of_short_blocks() const { return SHORT && promoted(); }
  // Whether it serves all turns of its group.
  __device__ __forceinline__ bool for_group() const {
    return AT_ONCE || of_short_blocks() || program.group_end[group] - group_begin(group) == 1;
  }
  // The unit where the block ends; a group that is not promoted has only one block, all of k.
  __device__ __forceinline__ int block_end(int units) const {
    return promoted() ? smaller(block + program.block, units) : units;
  }
  // Sets `end` and `last` from `first` and `turn`.
  __device__ __forceinline__ void begin(int units) {
    end = for_group() ? program.group_end[group] : turn + 1;
    last = of_short_blocks() ? smaller(first + SPAN, units) : smaller(first + HELD, block_end(units));
  }
  // The next part; its group is program.groups after the last one.
  __device__ __forceinline__ Part next(int units) const {
    Part part = *this;
    const bool over = of_short_blocks() || last == block_end(units);
    part.first = last;
    if (!for_group() && over && end < program.group_end[group]) {  // the same block, for the next turns
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
  // Whether it serves turn t.
  __device__ __forceinline__ bool has(int t) const { return AT_ONCE || (turn <= t && t < end); }
  // Whether any of its turns needs this word.
  __device__ __forceinline__ bool needs(const uint8_t (&words)[MOST], int word) const {
    bool needed = false;
#pragma unroll
    for (int t = 0; t < TURNS; ++t) needed = needed || (has(t) && takes(words, t, word));
    return needed;
  }
};
