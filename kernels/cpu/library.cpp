// The code for processors: one translation unit, compiled once for each set of instructions
// (building/compile_cpu.py), into libraries with the same C interface.
//
// Functions take a range of panels or tiles, so that threads share them out; they allocate nothing, start no thread,
// and keep no state. Nothing here runs when a library is loaded: no object has a constructor, since the processor may
// lack the instructions that all but ozaki_cpu_runs_here is compiled for.
#include "complex.h"
#include "describe.h"
#include "digit_products.h"
#include "digits.h"
#include "inner_products.h"
#include "limbs.h"
#include "products.h"
#include "proof.h"
#include "recombine.h"
#include "row_statistics.h"
#include "short_floats.h"
#include "split.h"
#include "tiles.h"
#include "whole.h"
#include "wide_split.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#define OZAKI_CPU extern "C" __attribute__((visibility("default")))

// The version of this interface: INTERFACE in ozaki/backends/numpy/compiled/self_test.py is the same number. It goes up
// with each change of a function, so that a library left over from other sources is never called.
OZAKI_CPU int ozaki_cpu_interface(void) { return 16; }

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define OZAKI_ANY_CPU __attribute__((target("no-avx")))
#else
#define OZAKI_ANY_CPU
#endif

// Whether the processor has the instructions that this library is compiled for, and the system saves their registers.
// This function is compiled for processors without them.
OZAKI_CPU OZAKI_ANY_CPU int ozaki_cpu_runs_here(void) {
#if defined(__AVX512VNNI__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
#elif defined(__AVXVNNI__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avxvnni") && __builtin_cpu_supports("fma");
#elif defined(__ARM_FEATURE_MATMUL_INT8) && defined(__linux__)
  return (getauxval(AT_HWCAP2) >> 13) & 1;  // HWCAP2_I8MM
#elif defined(__ARM_FEATURE_MATMUL_INT8) && defined(__APPLE__)
  int found = 0;
  size_t size = sizeof found;
  return sysctlbyname("hw.optional.arm.FEAT_I8MM", &found, &size, nullptr, 0) == 0 && found != 0;
#elif defined(__ARM_FEATURE_MATMUL_INT8)
  return 0;  // nobody says
#else
  return 1;
#endif
}

using namespace cpu;

// Describe blocks [begin, end) of 32 rows, counted through all matrices.
OZAKI_CPU void ozaki_cpu_describe(const Describe* d, int64_t begin, int64_t end) {
  const DefaultEnvironment environment;
  if (d->single) describe_blocks<float>(*d, begin, end);
  else describe_blocks<double>(*d, begin, end);
}

template <int N> struct Width {
  static constexpr int ROWS = N;  // of a panel
};

// Call `of(element, width)` with a number in the format of the elements, and the width of the panels of a side.
template <typename Function> static void for_elements_and_side(bool single, bool right, const Function& of) {
  const DefaultEnvironment environment;
  const Width<LEFT_ROWS> of_left;
  const Width<RIGHT_ROWS> of_right;
  if (single) right ? of(0.0f, of_right) : of(0.0f, of_left);
  else right ? of(0.0, of_right) : of(0.0, of_left);
}

template <typename Slice> static void split_into(const Split* s, int right, int64_t begin, int64_t end) {
  for_elements_and_side(s->single, right, [&](auto element, auto width) {
    split_panels<Slice, decltype(element), decltype(width)::ROWS>(*s, begin, end);
  });
}

// Split panels [begin, end), counted through all matrices, of the left or the right operand, into residues.
OZAKI_CPU void ozaki_cpu_split(const Split* s, int right, int64_t begin, int64_t end) {
  split_into<Residue>(s, right, begin, end);
}

// Split them into digits.
OZAKI_CPU void ozaki_cpu_split_digits(const Split* s, int right, int64_t begin, int64_t end) {
  split_into<Digit>(s, right, begin, end);
}

// Split panels of an operand of complex elements; `x` and its steps count their parts.
OZAKI_CPU void ozaki_cpu_split_complex(const Split* s, int right, int64_t begin, int64_t end) {
  for_elements_and_side(s->single, right, [&](auto element, auto width) {
    split_complex_panels<decltype(element), decltype(width)::ROWS>(*s, begin, end);
  });
}

template <typename Element, int PARTS> constexpr auto rounding_of() {
  if constexpr (PARTS == 2) return round_complex_tile<Element>;
  else return round_tile<Element>;
}

// Round a tile of residues into `out`, the result, whose entries have so many parts, numbers of the type Element.
template <int PARTS, typename Element>
static void round_into(Element* out, const Recombination& r, const Result& c, const Tile& tile, const int8_t* residues,
                       int64_t step, int64_t plane) {
  const auto of_tile = rounding_of<Element, PARTS>();
  of_tile(residues, step, plane, r, tile.row_end - tile.row, tile.column_end - tile.column,
          c.row_factors + tile.batch * c.step_of_row_factors + tile.row,
          c.column_factors + tile.batch * c.step_of_column_factors + tile.column,
          out + tile.batch * c.of_batch + tile.row * c.of_rows + PARTS * tile.column, c.of_rows);
}

template <int PARTS>
static void multiply_and_round(const Operands* of, const Recombination* r, const Result* c, int64_t begin, int64_t end,
                               int8_t* scratch) {
  const DefaultEnvironment environment;
  const int64_t step = c->tile_columns, plane = tile_plane(c->tile_rows, step);
  for (int64_t number = begin; number < end; number++) {
    const Tile tile = tile_of(*c, number);
    multiply_tile(*of, tile.batch, tile.row, tile.row_end, tile.column, tile.column_end, scratch, step, plane);
    if (c->single) round_into<PARTS>((float*)c->out, *r, *c, tile, scratch, step, plane);
    else round_into<PARTS>((double*)c->out, *r, *c, tile, scratch, step, plane);
  }
}

// Compute tiles [begin, end) of the result, counted through all matrices, row by row of tiles. `scratch` has
// room for `tile_plane` bytes for each modulus, and 64 more.
OZAKI_CPU void ozaki_cpu_multiply(const Operands* of, const Recombination* r, const Result* c, int64_t begin,
                                  int64_t end, int8_t* scratch) {
  multiply_and_round<1>(of, r, c, begin, end, scratch);
}

// Compute tiles of complex entries; `out` and its steps count their parts.
OZAKI_CPU void ozaki_cpu_multiply_complex(const Operands* of, const Recombination* r, const Result* c, int64_t begin,
                                          int64_t end, int8_t* scratch) {
  multiply_and_round<2>(of, r, c, begin, end, scratch);
}

// Compute the residues of tiles [begin, end) in place of rounded entries.
OZAKI_CPU void ozaki_cpu_residues(const Operands* of, const Result* c, int64_t begin, int64_t end, int8_t* scratch) {
  const DefaultEnvironment environment;
  const int64_t step = c->tile_columns, plane = tile_plane(c->tile_rows, step);
  for (int64_t number = begin; number < end; number++) {
    const Tile tile = tile_of(*c, number);
    multiply_tile(*of, tile.batch, tile.row, tile.row_end, tile.column, tile.column_end, scratch, step, plane);
    const int64_t columns = tile.column_end - tile.column;
    for (int64_t t = 0; t < of->count; t++) {
      for (int64_t i = tile.row; i < tile.row_end; i++) {
        int8_t* to = (int8_t*)c->out + ((t * c->batch + tile.batch) * c->rows + i) * c->columns + tile.column;
        memcpy(to, scratch + t * plane + (i - tile.row) * step, columns);
      }
    }
  }
}

template <typename Element>
static void multiply_digits(const DigitOperands& of, const Result& c, int64_t begin, int64_t end, int32_t* scratch) {
  for (int64_t number = begin; number < end; number++) {
    const Tile tile = tile_of(c, number);
    const double* of_rows = c.row_factors + tile.batch * c.step_of_row_factors;
    const double* of_columns = c.column_factors + tile.batch * c.step_of_column_factors;
    Element* out = (Element*)c.out + tile.batch * c.of_batch;
    const auto round = [&](const DiagonalSums& sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
      round_entries(sums, rows, columns, of_rows + row, of_columns + column, out + row * c.of_rows + column, c.of_rows);
    };
    multiply_digit_tile(of, tile.batch, tile.row, tile.row_end, tile.column, tile.column_end, scratch, round);
  }
}

// Compute tiles [begin, end) of the result from digits. `scratch` has `count` numbers for each row of a tile, and
// `count` for each entry of two panels.
OZAKI_CPU void ozaki_cpu_multiply_digits(const DigitOperands* of, const Result* c, int64_t begin, int64_t end,
                                         int32_t* scratch) {
  const DefaultEnvironment environment;
  if (c->single) multiply_digits<float>(*of, *c, begin, end, scratch);
  else multiply_digits<double>(*of, *c, begin, end, scratch);
}

template <bool ADDS>
static void multiply_digits_short(const DigitOperands& of, const Result& c, const ShortFormat& format,
                                  const Addend& addend, int64_t begin, int64_t end, int32_t* scratch) {
  for (int64_t number = begin; number < end; number++) {
    const Tile tile = tile_of(c, number);
    const double* of_rows = c.row_factors + tile.batch * c.step_of_row_factors;
    const double* of_columns = c.column_factors + tile.batch * c.step_of_column_factors;
    uint16_t* out = (uint16_t*)c.out + tile.batch * c.of_batch;
    const float* added = ADDS ? addend.c + tile.batch * addend.of_batch : nullptr;
    const auto round = [&](const DiagonalSums& sums, int64_t row, int64_t rows, int64_t column, int64_t columns) {
      const float* from = ADDS ? added + row * addend.of_rows + column : nullptr;
      round_short_entries<ADDS>(sums, rows, columns, of_rows + row, of_columns + column, out + row * c.of_rows + column,
                                c.of_rows, format, addend, from);
    };
    multiply_digit_tile(of, tile.batch, tile.row, tile.row_end, tile.column, tile.column_end, scratch, round);
  }
}

// Compute them as numbers of 16 bits, of at most four digits; `out` of the result has their bits.
OZAKI_CPU void ozaki_cpu_multiply_digits_short(const DigitOperands* of, const Result* c, const ShortFormat* format,
                                               const Addend* addend, int64_t begin, int64_t end, int32_t* scratch) {
  const DefaultEnvironment environment;
  const ShortFormat of_result = *format;
  if (addend->c) multiply_digits_short<true>(*of, *c, of_result, *addend, begin, end, scratch);
  else multiply_digits_short<false>(*of, *c, of_result, *addend, begin, end, scratch);
}

// Find the statistics of blocks [begin, end) of 16 rows, counted through all matrices.
OZAKI_CPU void ozaki_cpu_row_statistics(const RowStatistics* s, int64_t begin, int64_t end) {
  const DefaultEnvironment environment;
  if (s->last == 1) see_blocks<1>(*s, begin, end);
  else see_blocks<2>(*s, begin, end);
}

// Find the lower bounds of rows [begin, end).
OZAKI_CPU void ozaki_cpu_least_products(const LeastProducts* s, int64_t begin, int64_t end) {
  find_least(*s, begin, end);
}

// Compute the sums of the diagonals of tiles [begin, end), as int32 [count][batch][rows][columns], in place of rounded
// entries. `scratch` is that of `ozaki_cpu_multiply_digits`.
OZAKI_CPU void ozaki_cpu_diagonals(const DigitOperands* of, const Result* c, int64_t begin, int64_t end,
                                   int32_t* scratch) {
  for (int64_t number = begin; number < end; number++) {
    const Tile tile = tile_of(*c, number);
    const auto copy = [&](const DiagonalSums& x, int64_t row, int64_t rows, int64_t column, int64_t columns) {
      for (int64_t d = 0; d < x.count; d++) {
        for (int64_t i = 0; i < rows; i++) {
          int32_t* to = (int32_t*)c->out + ((d * c->batch + tile.batch) * c->rows + row + i) * c->columns + column;
          memcpy(to, x.sums + d * DIAGONAL + i * RIGHT_ROWS, 4 * columns);
        }
      }
    };
    multiply_digit_tile(*of, tile.batch, tile.row, tile.row_end, tile.column, tile.column_end, scratch, copy);
  }
}

// Write panels [begin, end) of magnitudes, counted through all matrices, of the left or the right operand.
OZAKI_CPU void ozaki_cpu_magnitudes(const Magnitudes* s, int right, int64_t begin, int64_t end) {
  for_elements_and_side(s->single, right, [&](auto element, auto width) {
    magnitude_panels<decltype(element), decltype(width)::ROWS>(*s, begin, end);
  });
}

// Sum products of magnitudes for panels [begin, end) of rows, counted through all matrices.
OZAKI_CPU void ozaki_cpu_sums(const SumsOfMagnitudes* s, int64_t begin, int64_t end) { sum_rows(*s, begin, end); }

// Find the largest ratios of rows [begin, end), counted through the first rows of all matrices.
OZAKI_CPU void ozaki_cpu_ratios(const Ratios* s, int64_t begin, int64_t end) {
  const DefaultEnvironment environment;
  if (s->integers) compare_rows<int32_t>(*s, begin, end);
  else compare_rows<double>(*s, begin, end);
}

// Bytes of the scratch of `ozaki_cpu_whole`.
OZAKI_CPU int64_t ozaki_cpu_whole_scratch(const Whole* of) { return Layout(*of, nullptr).nbytes; }

// Compute the matrices [begin, end) of a stack, NaN and Inf counted as zero, and return the number of these in their
// rows and columns; -1 if exponents of one are too large: then others may not have been computed.
OZAKI_CPU int64_t ozaki_cpu_whole(const Whole* of, int64_t begin, int64_t end, int8_t* scratch) {
  const DefaultEnvironment environment;
  int64_t nonfinite = 0;
  const bool all = of->single ? multiply_whole<float>(*of, begin, end, scratch, nonfinite)
                              : multiply_whole<double>(*of, begin, end, scratch, nonfinite);
  return all ? nonfinite : -1;
}

// Find the leading bits of blocks [begin, end) of 128 rows of numbers, counted through all matrices.
OZAKI_CPU void ozaki_cpu_leading(const Leading* d, int64_t begin, int64_t end) {
  const DefaultEnvironment environment;
  lead_blocks(*d, begin, end);
}

// Split blocks [begin, end) of 48 rows, counted through all matrices, of images of any width.
OZAKI_CPU void ozaki_cpu_split_wide(const WideSplit* s, int right, int64_t begin, int64_t end, uint32_t* scratch) {
  const DefaultEnvironment environment;
  if (right) split_wide_blocks<RIGHT_ROWS>(*s, begin, end, scratch);
  else split_wide_blocks<LEFT_ROWS>(*s, begin, end, scratch);
}

// Compute tiles [begin, end) of the result, whose residues take one byte or two, rounded once. `scratch` has the
// residues of a tile, then words + 1 rows of 48 words (`Remainders`) and limbs + 1 of such.
OZAKI_CPU void ozaki_cpu_multiply_wide(const WideOperands* of, const Remainders* r, const WideResult* c, int64_t begin,
                                       int64_t end, int8_t* scratch) {
  const DefaultEnvironment environment;
  const int64_t step = c->result.tile_columns, plane = tile_plane(c->result.tile_rows, step);
  uint32_t* const words = (uint32_t*)(scratch + c->residues);
  uint32_t* const rows = words + (r->words + 1) * PANEL_LANES;
  for (int64_t number = begin; number < end; number++) {
    const Tile tile = tile_of(c->result, number);
    multiply_wide_tile(*of, tile.batch, tile.row, tile.row_end, tile.column, tile.column_end, scratch, step, plane);
    for (int64_t i = tile.row; i < tile.row_end; i++) {
      for (int64_t j = tile.column; j < tile.column_end; j += PANEL_LANES) {
        const int8_t* residues = scratch + (i - tile.row) * step + (j - tile.column);
        limbs_of_entries(residues, plane, *r, words, rows + PANEL_LANES);
        for (int64_t k = j; k < j + PANEL_LANES && k < tile.column_end; k += LANES) {
          round_lanes(*c, tile.batch, i, k, tile.column_end - k, rows + (k - j), (int)r->limbs);
        }
      }
    }
  }
}

// Compute the residues of tiles [begin, end), as int16 [moduli][batch][rows][columns], in place of rounded entries.
OZAKI_CPU void ozaki_cpu_residues_wide(const WideOperands* of, const Result* c, int64_t begin, int64_t end,
                                       int8_t* scratch) {
  const DefaultEnvironment environment;
  const int64_t step = c->tile_columns, plane = tile_plane(c->tile_rows, step), bytes = of->bytes.count;
  for (int64_t number = begin; number < end; number++) {
    const Tile tile = tile_of(*c, number);
    multiply_wide_tile(*of, tile.batch, tile.row, tile.row_end, tile.column, tile.column_end, scratch, step, plane);
    for (int64_t t = 0; t < bytes + of->digit_count; t++) {
      const int8_t* low = scratch + (t < bytes ? t : 2 * t - bytes) * plane;
      for (int64_t i = tile.row; i < tile.row_end; i++) {
        int16_t* to = (int16_t*)c->out + ((t * c->batch + tile.batch) * c->rows + i) * c->columns;
        const int8_t* from = low + (i - tile.row) * step - tile.column;
        for (int64_t j = tile.column; j < tile.column_end; j++) {
          to[j] = t < bytes ? from[j] : (int16_t)(from[j] + 256 * from[j + plane]);
        }
      }
    }
  }
}

// Bytes of the scratch of `ozaki_cpu_inner_products`.
OZAKI_CPU int64_t ozaki_cpu_inner_products_scratch(void) { return sizeof(InnerScratch); }

template <typename X, typename Y>
static void inner_products_into(const InnerProducts& s, int64_t begin, int64_t end, InnerScratch& scratch) {
  if (s.single) inner_products_of<X, Y, float>(s, begin, end, scratch);
  else inner_products_of<X, Y, double>(s, begin, end, scratch);
}

// Compute groups [begin, end) of entries, NaN and Inf counted as zero; `scratch` begins with a line of the cache.
OZAKI_CPU void ozaki_cpu_inner_products(const InnerProducts* s, int64_t begin, int64_t end, InnerScratch* scratch) {
  const DefaultEnvironment environment;
  if (s->x_single && s->y_single) inner_products_into<float, float>(*s, begin, end, *scratch);
  else if (s->x_single) inner_products_into<float, double>(*s, begin, end, *scratch);
  else if (s->y_single) inner_products_into<double, float>(*s, begin, end, *scratch);
  else inner_products_into<double, double>(*s, begin, end, *scratch);
}
