// Residues of images of any width, as panels that split.h describes. A residue modulo a number above 256 is two digits,
// which take three planes, one after another: the upper digits, the lower ones, and their sums.
#pragma once

#include "images.h"

namespace cpu {

// A modulus of residues of one byte, whose planes come first.
struct ByteModulus {
  int32_t modulus;
  float inverse;
  int32_t fold;    // 2**16 modulo the modulus, of least absolute value
  int32_t offset;  // added to residues in [-m/2, m/2]
};

// A modulus of residues of two digits. Left ones are 128 times the upper digit plus the lower one, in [-64, 63]; right
// ones, of which the sums are less than the residue by `offset`, have digits that are not negative.
struct DigitModulus {
  int32_t modulus;
  float inverse;
  int32_t offset;
};

// The images are multiplied by rows of bytes: of each power of 256, modulo each number. Those for one byte are a row;
// of two digits a row of lower digits of seven bits, and one of upper ones.
struct WideSplit {
  Source source;
  int64_t words;               // of an image
  const int8_t* rows;          // [panels][words][8][4]: those for one byte in whole panels, then those of two digits
  const int32_t* starts;       // [panels][8]: what the products are added to
  const ByteModulus* bytes;
  int64_t byte_count;
  const DigitModulus* digits;
  int64_t digit_count;
  int8_t* out;
  int64_t plane, matrix;       // bytes from one plane, and from one matrix, to the next
  int64_t depth;               // k with its padding, a multiple of 16
};

constexpr int TOGETHER = 4;  // panels of images: four rows along k, or four inner indices across rows

// The residues of one modulus or digit, from those of four panels of images, to where they lie in panels of WIDTH rows.
template <int WIDTH, bool ACROSS> struct Places {
  int8_t* out;                 // of the block's first row and of the first inner index
  int64_t panel;               // bytes of a panel
  int panels, vectors;         // that are wanted: panels of WIDTH rows, and vectors along k

  INLINE_MEMBER void put(int v, Bytes in_rows, int32_t offset) const {
    if constexpr (ACROSS) {
      const Bytes bytes = shifted(transposed(in_rows), offset);
      if constexpr (WIDTH == PANEL_LANES) {
        store(out + 64 * v, bytes);
      } else {
        for (int i = 0; i < 2; i++) {
          if (2 * v + i < panels) memcpy(out + (2 * v + i) * panel, (const char*)&bytes + 32 * i, 32);
        }
      }
    } else if (v < vectors) {
      const Bytes bytes = shifted(in_rows, offset);
      for (int lane = 0; lane < 4; lane++) {
        memcpy(out + (4 * v + lane) * 4 * WIDTH, (const char*)&bytes + 16 * lane, 16);
      }
    }
  }
};

INLINE Ints byte_residue(Ints sum, const ByteModulus& of, bool fold) {
  if (of.modulus == 256) return (sum << 24) >> 24;
  if (fold) sum = dot_products_of_halves((sum + 0x8000) ^ 0x8000, 1, of.fold);
  return least_residue(sum, of.modulus, of.inverse);
}

// Residues of four panels of images, [4][words][48], by all moduli.
template <int WIDTH, bool ACROSS>
INLINE void residues_of(const WideSplit& s, const uint32_t* images, int8_t* out, int64_t panel, int panels, int vectors,
                        bool right) {
  int32_t sums[TOGETHER][PANEL_ROWS][PANEL_LANES];
  const int8_t* rows = s.rows;
  const int32_t* starts = s.starts;
  const auto multiply_panel = [&] {
    for (int j = 0; j < TOGETHER; j++) {
      multiply_words(rows, images + j * s.words * PANEL_LANES, s.words, starts, &sums[j][0][0]);
    }
    rows += 4 * PANEL_ROWS * s.words, starts += PANEL_ROWS;
  };
  const bool fold = s.words > 63;  // else sums are below 2**23
  for (int64_t t = 0; t < s.byte_count; t += PANEL_ROWS) {
    multiply_panel();
    for (int i = 0; i < PANEL_ROWS && t + i < s.byte_count; i++) {
      const ByteModulus of = s.bytes[t + i];
      const Places<WIDTH, ACROSS> places = {out + (t + i) * s.plane, panel, panels, vectors};
      for (int v = 0; v < PANEL_VECTORS; v++) {
        Ints residues[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) residues[j] = byte_residue(load<Ints>(&sums[j][i][LANES * v]), of, fold);
        places.put(v, packed(residues[0], residues[1], residues[2], residues[3]), of.offset);
      }
    }
  }
  for (int64_t t = 0; t < s.digit_count; t += PANEL_ROWS / 2) {
    multiply_panel();
    for (int i = 0; i < PANEL_ROWS / 2 && t + i < s.digit_count; i++) {
      const DigitModulus of = s.digits[t + i];
      int8_t* to = out + (s.byte_count + 3 * (t + i)) * s.plane;
      const Places<WIDTH, ACROSS> uppers = {to, panel, panels, vectors},
                                  lowers = {to + s.plane, panel, panels, vectors},
                                  both = {to + 2 * s.plane, panel, panels, vectors};
      for (int v = 0; v < PANEL_VECTORS; v++) {
        Ints upper[TOGETHER], lower[TOGETHER], sum[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) {
          const Ints low = load<Ints>(&sums[j][2 * i][LANES * v]), high = load<Ints>(&sums[j][2 * i + 1][LANES * v]);
          const Ints residue = near_residue((high << 7) + low, of.modulus, of.inverse) + of.offset;
          if (right) {  // digits less by 64, and sums by 128, fit signed bytes
            upper[j] = (residue >> 7) - 64, lower[j] = (residue & 127) - 64;
          } else {
            upper[j] = (residue + 64) >> 7, lower[j] = residue - (upper[j] << 7);
          }
          sum[j] = upper[j] + lower[j];
        }
        uppers.put(v, packed(upper[0], upper[1], upper[2], upper[3]), right ? 64 : 0);
        lowers.put(v, packed(lower[0], lower[1], lower[2], lower[3]), right ? 64 : 0);
        both.put(v, packed(sum[0], sum[1], sum[2], sum[3]), right ? 128 : 0);
      }
    }
  }
}

// Blocks [begin, end) of 48 rows, counted through all matrices. `scratch` has room for four panels of images, and for
// sixteen numbers (`Source`).
template <int WIDTH> static void split_wide_blocks(const WideSplit& s, int64_t begin, int64_t end, uint32_t* scratch) {
  constexpr bool right = WIDTH == PANEL_LANES;
  const Numbers& x = s.source.numbers;
  const int words = (int)s.words;
  const int64_t blocks = (x.rows + PANEL_LANES - 1) / PANEL_LANES, of_panel = WIDTH * s.depth;
  const Steps steps = s.source.floats ? s.source.of_floats : x.of_limbs;
  const bool across = steps.of_rows == 1 && steps.of_k != 1;
  uint32_t* const images = scratch;
  uint32_t* const limbs = scratch + TOGETHER * s.words * PANEL_LANES;
  for (int64_t number = begin; number < end; number++) {
    const int64_t batch = number / blocks, row = number % blocks * PANEL_LANES;
    int8_t* out = s.out + batch * s.matrix + row * s.depth;
    const int64_t panels = (x.rows - row + WIDTH - 1) / WIDTH;  // this one and those after it
    if (across) {
      for (int64_t h = 0; h < s.depth; h += TOGETHER) {
        for (int j = 0; j < TOGETHER; j++) {
          for (int v = 0; v < PANEL_VECTORS; v++) {
            image_of<true>(s.source, batch, row + LANES * v, h + j, words, images + j * words * PANEL_LANES + LANES * v,
                           PANEL_LANES, limbs);
          }
        }
        residues_of<WIDTH, true>(s, images, out + h * WIDTH, of_panel, panels < 6 ? (int)panels : 6, 0, right);
      }
      continue;
    }
    for (int first = 0; first < PANEL_LANES && first / WIDTH < panels; first += WIDTH) {
      for (int64_t h = 0; h < s.depth; h += PANEL_LANES) {
        const int64_t rest = (s.depth - h) / LANES;
        const int vectors = rest < PANEL_VECTORS ? (int)rest : PANEL_VECTORS;
        for (int i = first; i < first + WIDTH; i += TOGETHER) {  // while the lines of the panel are in a cache
          for (int j = 0; j < TOGETHER; j++) {
            for (int v = 0; v < PANEL_VECTORS; v++) {
              image_of<false>(s.source, batch, row + i + j, h + LANES * v, words,
                              images + j * words * PANEL_LANES + LANES * v, PANEL_LANES, limbs);
            }
          }
          int8_t* to = out + first * s.depth + h * WIDTH + 4 * (i - first);
          residues_of<WIDTH, false>(s, images, to, of_panel, 0, vectors, right);
        }
      }
    }
  }
}

}  // namespace cpu
