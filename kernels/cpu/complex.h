// Complex products by residues modulo numbers with a root of -1 (docs/definitions.md, section 9).
//
// Modulo a number with the root s, an element x + i y has two residues, those of x + s y and of x - s y; of an operand
// they lie one plane for each modulus after the other, and then those of the other kind. P and Q are the residues of an
// entry: of the products of the former, and of the latter. Left residues have the factors that make P + Q the residue
// of the real part that recombine.h takes; that of the imaginary part is -s (P - Q). Neither is reduced: the factor -s
// is part of the weights of the imaginary part, and P + Q and P - Q are below 2**8. With weights of 40 bits a limb the
// sums of up to 16 moduli are below 2**52, and so are the products of a limb of the moduli's product and the quotient,
// which is below 2**12.
#pragma once

#include "recombine.h"
#include "split.h"

namespace cpu {

// Images of 4 rows and 16 neighbours along k, or of 16 rows and 4 neighbours, as four vectors of each part; and where
// the residues of 4 rows and 4 neighbours each go: a quarter of these bytes, or nowhere.
struct Square {
  Words real[4], imaginary[4];
  int8_t* to[4];
};

// The parts of eight elements.
struct Parts {
  Doubles real, imaginary;
};

// Those of eight elements from `x` on, `step` numbers apart; zero in place of NaN and Inf, and of those beyond the
// first `count`. They begin at inner index `at`, are neighbours ALONG k or all at it, and have factors `inner`
// (`scaled`).
template <bool ALONG, typename Number>
INLINE Parts parts_of(const Number* x, int64_t step, int64_t count, const double* inner, int64_t at) {
  if (count <= 0) return {Doubles{}, Doubles{}};
  Parts parts;
  if (count >= 8 && step == 2) {
    const Doubles low = neighbours(x), high = neighbours(x + 8);
    parts = {even_ones(low, high), odd_ones(low, high)};
  } else {
    parts = {raw_elements(x, step, count), raw_elements(x + 1, step, count)};
  }
  const Doubles imaginary = scaled<ALONG>(parts.imaginary, inner, at, count);
  return {finite(scaled<ALONG>(parts.real, inner, at, count)), finite(imaginary)};
}

// The factors that make images of sixteen elements.
struct FactorsOfSixteen {
  double first[16] = {}, second[16] = {};

  INLINE_MEMBER void set(int place, int64_t exponent) {
    const Power power(exponent);
    first[place] = power.first, second[place] = power.second;
  }
};

// The images of sixteen elements, of vector `i` of a square, whose factors are from `place` on, or are all at `place`.
template <bool ONE>
INLINE void set_images(Square& square, int i, const Parts& low, const Parts& high, const FactorsOfSixteen& by,
                       int place) {
  Doubles first[2], second[2];
  for (int half = 0; half < 2; half++) {
    first[half] = ONE ? doubles(by.first[place]) : load<Doubles>(by.first + place + 8 * half);
    second[half] = ONE ? doubles(by.second[place]) : load<Doubles>(by.second + place + 8 * half);
  }
  const uint64_t bias = bias_of(Residue{}, false);
  square.real[i] = words_of(low.real * first[0] * second[0], high.real * first[1] * second[1], bias);
  square.imaginary[i] = words_of(low.imaginary * first[0] * second[0], high.imaginary * first[1] * second[1], bias);
}

INLINE Ints sum_of(const Words& image, const Residue& of) {
  return dot_products(dot_products(ints(of.start), image.low, ints(of.low)), image.high, ints(of.high));
}

// Write the residues of squares, both of each element modulo each number. TURNED: squares have 16 rows, not 4. JOINED:
// their quarters are neighbours.
template <bool TURNED, bool JOINED> INLINE void write_squares(const Square* squares, int number, const Split& s) {
  const int64_t moduli = s.count / 2, to_other = moduli * s.plane;
  for (int64_t t = 0; t < moduli; t++) {
    const Residue of = ((const Residue*)s.slices)[t], of_turned = ((const Residue*)s.slices)[moduli + t];
    for (int n = 0; n < number; n++) {
      const Square& square = squares[n];
      Ints plus[4], minus[4];
      for (int i = 0; i < 4; i++) {
        const Ints x = sum_of(square.real[i], of), y = sum_of(square.imaginary[i], of_turned);  // below 2**18
        plus[i] = least_residue(x + y, of.modulus, of.inverse);
        minus[i] = least_residue(x - y, of.modulus, of.inverse);
      }
      Bytes bytes[2] = {packed(plus[0], plus[1], plus[2], plus[3]), packed(minus[0], minus[1], minus[2], minus[3])};
      for (int kind = 0; kind < 2; kind++) {
        bytes[kind] = shifted(TURNED ? transposed(bytes[kind]) : bytes[kind], of.offset);
        const int64_t plane = t * s.plane + kind * to_other;
        if constexpr (JOINED) store(square.to[0] + plane, bytes[kind]);
        for (int lane = 0; lane < 4 && !JOINED; lane++) {
          int8_t* to = square.to[lane];
          if (to) memcpy(to + plane, (const char*)&bytes[kind] + 16 * lane, 16);
        }
      }
    }
  }
}

constexpr int SQUARES = 4;  // at a time, for whose images constants are loaded once

// Rows [row, row + 4) of a panel that begins at `out`; their neighbours along k are `of_k` apart.
template <typename Number, int WIDTH>
INLINE void split_along_k(const Split& s, const Number* x, int64_t batch, int64_t row, int8_t* out) {
  const Number* rows[4];
  int64_t lengths[4];
  const double* inner = s.inner.of(batch);
  FactorsOfSixteen factors;
  for (int i = 0; i < 4; i++) {
    const bool there = row + i < s.rows;
    rows[i] = x + (there ? row + i : 0) * s.of_rows, lengths[i] = there ? s.k : 0;
    if (there) factors.set(i, s.exponents[batch * s.rows + row + i]);
  }
  for (int64_t h = 0; h < s.depth; h += 16 * SQUARES) {
    const int number = s.depth - h < 16 * SQUARES ? (int)(s.depth - h) / 16 : SQUARES;
    Square squares[SQUARES];
    for (int n = 0; n < number; n++) {
      const int64_t at = h + 16 * n;
      for (int i = 0; i < 4; i++) {
        const int64_t count = lengths[i] - at;
        const Number* from = rows[i] + (count > 0 ? at : 0) * s.of_k;
        const Parts low = parts_of<true>(from, s.of_k, count, inner, at);
        const Parts high = parts_of<true>(from + (count > 8 ? 8 * s.of_k : 0), s.of_k, count - 8, inner, at + 8);
        set_images<true>(squares[n], i, low, high, factors, i);
        squares[n].to[i] = out + (at + 4 * i) * WIDTH + row % WIDTH * 4;
      }
    }
    write_squares<false, false>(squares, number, s);
  }
}

// The rows of a panel, which are neighbours in memory, sixteen at a time: of panels of eight rows, those of two. The
// first panel of the matrix begins at `out`.
template <typename Number, int WIDTH>
INLINE void split_across(const Split& s, const Number* x, int64_t batch, int64_t panel, int8_t* out) {
  constexpr int STRIPS = (WIDTH + 15) / 16, MOST = 12 / STRIPS;  // of rows; and words along k at a time
  const int64_t rest = (s.rows - panel * WIDTH + 15) / 16, strips = rest < STRIPS ? rest : STRIPS;
  const int64_t padded = (s.rows + WIDTH - 1) / WIDTH * WIDTH;
  const double* inner = s.inner.of(batch);
  FactorsOfSixteen factors[STRIPS];
  for (int i = 0; i < 16 * STRIPS && panel * WIDTH + i < s.rows; i++) {
    factors[i / 16].set(i % 16, s.exponents[batch * s.rows + panel * WIDTH + i]);
  }
  for (int64_t h = 0; h < s.depth; h += 4 * MOST) {
    const int words = s.depth - h < 4 * MOST ? (int)(s.depth - h) / 4 : MOST;
    Square squares[MOST * STRIPS];
    for (int n = 0; n < words * strips; n++) {
      const int strip = n % strips;
      const int64_t row = panel * WIDTH + 16 * strip, rows = s.rows - row < 16 ? s.rows - row : 16;
      const int64_t at = h + n / strips * 4;
      for (int i = 0; i < 4; i++) {
        const int64_t count = at + i < s.k ? rows : 0, quarter = row + 4 * i;
        const Number* from = x + (count > 0 ? (at + i) * s.of_k + 2 * row : 0);
        const Parts low = parts_of<false>(from, 2, count, inner, at + i);
        const Parts high = parts_of<false>(from + (count > 8 ? 16 : 0), 2, count - 8, inner, at + i);
        set_images<false>(squares[n], i, low, high, factors[strip], 0);
        int8_t* begin = out + quarter / WIDTH * WIDTH * s.depth + at * WIDTH + quarter % WIDTH * 4;
        squares[n].to[i] = quarter < padded ? begin : nullptr;
      }
    }
    write_squares<true, WIDTH % 16 == 0>(squares, words * strips, s);
  }
}

// Split panels [begin, end), counted through all matrices; steps of x are in numbers, and the parts of an element are
// neighbours. Rows of panels beyond those of x, of which no result is made, may keep what they hold.
template <typename Number, int WIDTH> void split_complex_panels(const Split& s, int64_t begin, int64_t end) {
  const int64_t panels = (s.rows + WIDTH - 1) / WIDTH;
  const bool across = s.of_rows == 2 && s.of_k != 2;
  for (int64_t at = begin; at < end; at++) {
    const int64_t batch = at / panels, panel = at % panels, row = panel * WIDTH;
    const Number* x = (const Number*)s.x + batch * s.of_batch;
    int8_t* out = s.out + batch * s.matrix;
    if (!across) {
      for (int i = 0; i < WIDTH && row + i < s.rows; i += 4) {
        split_along_k<Number, WIDTH>(s, x, batch, row + i, out + row * s.depth);
      }
    } else if (WIDTH >= 16 || panel % 2 == 0) {
      split_across<Number, WIDTH>(s, x, batch, panel, out);
    }
  }
}

// The limbs of the real and of the imaginary parts of sixteen entries, whose residues are [2][count], `plane` apart.
template <int LIMBS>
INLINE void limbs_of_parts(const int8_t* residues, int64_t plane, const Recombination& r, Limbs (&parts)[2][2]) {
  Doubles limbs[2][2][3] = {};  // of parts and of halves
  const int8_t* others = residues + r.count * plane;
  const double *of_real = r.weights, *of_imaginary = r.weights + r.count * LIMBS;
  for (int64_t t = 0; t < r.count; t++, residues += plane, others += plane) {
    const Ints p = widened(load<QuarterBytes>(residues)), q = widened(load<QuarterBytes>(others));
    const Sixteen real = sixteen(p + q), imaginary = sixteen(p - q);
    for (int l = 0; l < LIMBS; l++, of_real++, of_imaginary++) {
      for (int half = 0; half < 2; half++) {
        limbs[0][half][l] = multiply_add(real.halves[half], doubles(*of_real), limbs[0][half][l]);
        limbs[1][half][l] = multiply_add(imaginary.halves[half], doubles(*of_imaginary), limbs[1][half][l]);
      }
    }
  }
  for (int part = 0; part < 2; part++) {
    for (int half = 0; half < 2; half++) {
      parts[part][half] = without_multiple<LIMBS>(limbs[part][half], r);
    }
  }
}

// Sixteen numbers, of which only the first `count` are wanted, `to` on.
template <typename Number> INLINE void store_pairs(Number* to, Doubles real, Doubles imaginary, int64_t count) {
  store_some(to, first_pairs(real, imaginary), count);
  if (count > 8) {
    store_some(to + 8, last_pairs(real, imaginary), count - 8);
  }
}

template <typename Number, int LIMBS>
static void round_complex_limbs(const int8_t* residues, int64_t step, int64_t plane, const Recombination& r,
                                int64_t rows, int64_t columns, const double* of_rows, const double* of_columns,
                                Number* out, int64_t out_step) {
  constexpr bool ODD = sizeof(Number) == 4;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j += 16) {
      Limbs parts[2][2];
      limbs_of_parts<LIMBS>(residues + i * step + j, plane, r, parts);
      for (int half = 0; half < 2 && j + 8 * half < columns; half++) {
        const int64_t at = j + 8 * half;
        const Doubles of_column = load<Doubles>(of_columns + at);
        const Doubles real = rounded<ODD>(parts[0][half]) * of_rows[i] * of_column;
        const Doubles imaginary = rounded<ODD>(parts[1][half]) * of_rows[i] * of_column;
        store_pairs(out + i * out_step + 2 * at, real, imaginary, 2 * (columns - at));
      }
    }
  }
}

// Entries of a tile of residues, as round_tile makes real ones; `out` and its step are in numbers.
template <typename Number>
static void round_complex_tile(const int8_t* residues, int64_t step, int64_t plane, const Recombination& r,
                               int64_t rows, int64_t columns, const double* of_rows, const double* of_columns,
                               Number* out, int64_t out_step) {
  const auto of_limbs = r.limbs == 1   ? round_complex_limbs<Number, 1>
                        : r.limbs == 2 ? round_complex_limbs<Number, 2>
                                       : round_complex_limbs<Number, 3>;
  of_limbs(residues, step, plane, r, rows, columns, of_rows, of_columns, out, out_step);
}

}  // namespace cpu
