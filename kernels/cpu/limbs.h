// Chinese remainders of any number of moduli, to limbs of 32 bits, and the one rounding of these.
#pragma once

#include "numbers.h"
#include "tiles.h"
#include "words.h"

namespace cpu {

// Cbar = sum over the bytes of all residues of (byte + 128) weight, plus a constant, less a multiple of the product of
// all moduli, whose factor is another word of bytes: q + 2**20.
struct Remainders {
  int64_t planes;              // bytes of the residues of an entry
  int64_t words;               // of four of them
  int64_t limbs;               // of Cbar in two's complement; even
  const int8_t* quotient;      // [words][8][4]: five rows of bytes of weight / product in units of 2**-32
  const int32_t* quotient_starts;
  const int8_t* weights;       // [limbs / 2][words + 1][8][4]: a row for each byte of Cbar, the lowest first
  const int32_t* starts;       // [limbs / 2][8]
};

constexpr int QUOTIENT_ROWS = 5;

// The words of 48 entries, [words][48], from their residues in planes: four bytes of different planes, plus 128 each.
static void interleave(const int8_t* residues, int64_t plane, const Remainders& r, uint32_t* to) {
  for (int64_t w = 0; w < r.words; w++) {
    for (int v = 0; v < PANEL_VECTORS; v++) {
      Ints word = {};
      for (int j = 3; j >= 0; j--) {
        const int64_t p = 4 * w + j;
        Ints byte = {};
        if (p < r.planes) byte = widened(load<QuarterBytes>(residues + p * plane + LANES * v)) & 255;
        word = (word << 8) | byte;
      }
      store(to + w * PANEL_LANES + LANES * v, word ^ (int32_t)0x80808080);
    }
  }
}

// Cbar of 48 entries in two's complement: [limbs][48], the lowest first. `scratch` has words + 1 rows of 48 words.
static void limbs_of_entries(const int8_t* residues, int64_t plane, const Remainders& r, uint32_t* scratch,
                             uint32_t* limbs) {
  int32_t sums[PANEL_ROWS][PANEL_LANES];
  interleave(residues, plane, r, scratch);
  multiply_words(r.quotient, scratch, r.words, r.quotient_starts, &sums[0][0]);
  for (int v = 0; v < PANEL_VECTORS; v++) {
    Doubles about[2] = {};
    for (int i = QUOTIENT_ROWS - 1; i >= 0; i--) {
      for (int half = 0; half < 2; half++) {
        const HalfInts some = load<HalfInts>(&sums[i][LANES * v + 8 * half]);
        about[half] = about[half] * 256.0 + converted<Doubles>(some);
      }
    }
    // Right, since abs(Cbar) stays away from half the product.
    const Ints q = nearest_integers(about[0] * 0x1p-32, about[1] * 0x1p-32);
    store(scratch + r.words * PANEL_LANES + LANES * v, q + (1 << 20));
  }
  Ints carries[PANEL_VECTORS] = {};
  const int8_t* weights = r.weights;
  for (int64_t l = 0; l < r.limbs; l += 2, weights += 4 * PANEL_ROWS * (r.words + 1)) {
    multiply_words(weights, scratch, r.words + 1, r.starts + 4 * l, &sums[0][0]);
    for (int v = 0; v < PANEL_VECTORS; v++) {
      Ints carry = carries[v];
      for (int limb = 0; limb < 2; limb++) {
        Ints word = {};
        for (int i = 0; i < 4; i++) {
          carry += load<Ints>(&sums[4 * limb + i][LANES * v]);
          word |= (carry & 255) << (8 * i);
          carry >>= 8;
        }
        store(limbs + (l + limb) * PANEL_LANES + LANES * v, word);
      }
      carries[v] = carry;
    }
  }
}

// Sixteen magnitudes, [limbs + 1][48] of words, the lowest first, after a row of zeros; where their highest bits are.
struct LaneMagnitudes {
  const uint32_t* rows;        // that of zeros, number 0
  int limbs;
  Ints negative;               // -1 or 0
  Ints bits;                   // up to the highest bit that is set; 0 of zero
  Ints zeros;                  // bits below the lowest one that is set
};

// Make integers in two's complement magnitudes. `rows` has a row before them, which is overwritten.
INLINE LaneMagnitudes magnitudes_of_lanes(uint32_t* rows, int limbs) {
  store(rows, UnsignedInts{});
  const Ints negative = load<Ints>(rows + limbs * PANEL_LANES) >> 31;
  UnsignedInts carry = (UnsignedInts)(negative & 1), highest = {}, lowest = {};
  Ints high = {}, low = {};
  for (int l = 1; l <= limbs; l++) {
    const UnsignedInts limb = (load<UnsignedInts>(rows + l * PANEL_LANES) ^ (UnsignedInts)negative) + carry;
    carry &= (UnsignedInts)(limb == 0);
    store(rows + l * PANEL_LANES, limb);
    const Ints filled = limb != 0, first = filled & (low == 0);
    highest = select(filled, limb, highest), high = select(filled, ints(l), high);
    lowest = select(first, limb, lowest), low = select(first, ints(l), low);
  }
  const Ints bits = 32 * (high - 1) + bit_lengths(highest), zeros = 32 * low - 33 + bit_lengths(lowest & -lowest);
  return {rows, limbs, negative, select(high == 0, Ints{}, bits), select(high == 0, Ints{}, zeros)};
}

// Where results of many bits go.
struct NumbersOut {
  int8_t* signs;
  int64_t* exponents;
  uint32_t* limbs;
  int64_t bits;
  int64_t of_limb;             // from one limb of a number to the next
  int64_t signs_batch, signs_row, exponents_batch, exponents_row, limbs_batch, limbs_row;  // steps; along rows 1
};

// The first `count` of sixteen words, at `to`.
INLINE void store_words(uint32_t* to, UnsignedInts words, int64_t count) {
  if (count >= LANES) store(to, words);
  else memcpy(to, &words, 4 * count);
}

// Sixteen magnitudes rounded to nearest at their first `bits` bits, ties to even, to the first `count` lanes at
// `limbs`. Returns the exponents of the numbers.
INLINE Ints round_to_limbs(const LaneMagnitudes& x, int64_t bits, uint32_t* limbs, int64_t of_limb, int64_t count) {
  const int wanted = (int)((bits + 31) / 32), spare = (int)(32 * wanted - bits);
  const Ints top = (x.bits + 31) >> 5;  // row of the highest bit
  const UnsignedInts shift = (UnsignedInts)((-x.bits) & 31);
  const int least = least_of(top), largest = largest_of(top);
  UnsignedInts high = of_rows(x.rows, PANEL_LANES, top, least, largest, x.limbs);
  UnsignedInts last = {}, guard = {};
  for (int j = 0; j <= wanted; j++) {
    const int below = j + 1;
    const UnsignedInts low = of_rows(x.rows, PANEL_LANES, top - below, least - below, largest - below, x.limbs);
    const UnsignedInts word = joined(high, low, shift);
    high = low;
    if (j < wanted) store_words(limbs + j * of_limb, word, count);
    if (j == wanted - 1) {
      last = word;
      if (spare) {
        guard = (word >> (spare - 1)) & 1;
        break;
      }
    }
    if (j == wanted) guard = word >> 31;
  }
  const UnsignedInts odd = (last >> spare) & 1;
  const UnsignedInts up = guard & (odd | (UnsignedInts)(x.zeros < x.bits - (int32_t)bits - 1));
  UnsignedInts carry = up << spare;
  last = (last >> spare) << spare;
  Ints exponents = x.bits;
  for (int j = wanted - 1; j >= 0; j--) {
    UnsignedInts limb = last;
    if (j < wanted - 1) {
      if (!any((Ints)carry)) break;
      limb = UnsignedInts{};
      memcpy(&limb, limbs + j * of_limb, 4 * (count < LANES ? count : LANES));
    }
    limb += carry;
    carry = (UnsignedInts)((limb < carry) & 1);
    if (j == 0) {  // rounded up to a power of two
      limb |= carry << 31;
      exponents += (Ints)carry;
    }
    store_words(limbs + j * of_limb, limb, count);
  }
  return exponents;
}

// An entry of which `head` has the highest 64 bits, if `inexact` not all, rounded once to a float of `precision` bits
// which is a multiple of 2**least: head 2**(exponent - 64).
INLINE double rounded_head(uint64_t head, bool inexact, int64_t exponent, int precision, int least) {
  if (head == 0) return 0;
  const int64_t bits = exponent - least < precision ? exponent - least : precision;  // that are kept
  if (bits < 0) return 0;
  if (bits == 0) return head > (uint64_t(1) << 63) || inexact ? ldexp(1.0, least) : 0;
  const int cut = (int)(64 - bits);
  uint64_t units = head >> cut;
  const uint64_t rest = head & ((uint64_t(1) << cut) - 1), half = uint64_t(1) << (cut - 1);
  units += rest > half || (rest == half && (inexact || (units & 1)));
  return ldexp((double)units, exponent - bits > 2000 ? 2000 : (int)(exponent - bits));
}

// Flags of entries that are undecided (docs/bounds.md, B14): the exact entry lies within left[0] right[0] + left[1]
// right[1] of the integer, where a midpoint of two results may lie, too.
struct Undecided {
  uint8_t* flags;                  // null: none are wanted
  int64_t of_batch, of_rows;       // steps; along rows 1
  const double* left[2];           // [batch or 1][rows]
  const double* right[2];          // [batch or 1][columns]
  int64_t step_of_left, step_of_right;  // from one matrix to the next; 0 for the only one
};

// Whether an entry that `rounded_head` rounds is undecided. `tail` are the 32 bits below `head`, and `error` is in
// units of the last bit of `head`.
INLINE bool is_undecided(uint64_t head, uint32_t tail, int64_t exponent, int precision, int least, double error) {
  if (error == 0) return false;
  const int64_t bits = exponent - least < precision ? exponent - least : precision;
  if (head == 0 || bits <= 0) return true;
  const int cut = (int)(64 - bits);
  const double below = (double)(head & ((uint64_t(1) << cut) - 1)) + tail * 0x1p-32;
  const double half = (double)(uint64_t(1) << (cut - 1));
  const double reach = error + 0x1p-32 + half * 0x1p-50;  // the bits below the tail, and roundings here
  const double off = below < half ? half - below : below - half;
  return off <= reach || reach >= 0.5 * half;  // midpoints below a power of two lie twice as close
}

struct WideResult {
  Result result;                   // where floats go; without factors
  int64_t to_numbers;              // whether the result is `numbers`
  NumbersOut numbers;
  const int64_t *mu, *nu;          // exponents of the images, [batch or 1][rows] and [batch or 1][columns]
  int64_t step_of_mu, step_of_nu;  // from one matrix to the next; 0 for the only one
  Undecided undecided;             // of floats
  int64_t residues;                // bytes of the scratch memory that the residues of a tile take, a multiple of 64
};

// The errors of eight entries of a row, from a column on, of which `count` exist.
INLINE Doubles errors_of(const Undecided& u, int64_t left, int64_t right, int64_t count) {
  return some_neighbours(u.right[0] + right, count) * u.left[0][left] +
         some_neighbours(u.right[1] + right, count) * u.left[1][left];
}

// Round eight entries to float64, of which `count` exist and none but zero leaves the normal range. The words h, m, l
// are their first 96 bits, l made odd where anything lies below. H 2**32 = h 2**64 + m 2**32 without the low 11 bits of
// m, and L = those 11 bits and l, are float64 numbers, and so is H 2**32 + L - RN(H 2**32 + L).
INLINE void round_eight(const WideResult& c, int64_t batch, int64_t i, int64_t j, int64_t count, Doubles h,
                        Doubles upper_m, Doubles lower_m, Doubles l, Doubles negative, Longs bits, Longs exponents) {
  const Doubles high = h * 0x1p32 + upper_m, low = lower_m * 0x1p32 + l;
  const Doubles value = multiply_add(high, doubles(0x1p32), low);
  const Doubles scaled = value * powers(exponents - 96);
  const int64_t at = batch * c.result.of_batch + i * c.result.of_rows + j;
  store_some((double*)c.result.out + at, select(negative < 0, -scaled, scaled), count);
  const Undecided& u = c.undecided;
  if (!u.flags || count <= 0) return;
  const Doubles errors = errors_of(u, batch * u.step_of_left + i, batch * u.step_of_right + j, count);
  const Doubles rest = multiply_add(high, doubles(0x1p32), -value) + low;
  const Doubles reach = errors * powers(96 - bits) + 1.25;  // what lies below l, and roundings here
  const Longs undecided = (errors > 0) & ((value + (rest + reach) != value) | (value + (rest - reach) != value));
  uint8_t* flags = u.flags + batch * u.of_batch + i * u.of_rows + j;
  memset(flags, 0, count < 8 ? count : 8);
  if (none(undecided)) return;
  for (int lane = 0; lane < count && lane < 8; lane++) flags[lane] = undecided[lane] & 1;
}

// Round sixteen entries to float64 as `round_lanes` does, and return whether that was possible: where no entry but zero
// is near the ends of the range.
INLINE bool round_normal(const WideResult& c, int64_t batch, int64_t i, int64_t j, int64_t count,
                         const LaneMagnitudes& x) {
  const int64_t mu = c.mu[batch * c.step_of_mu + i], *nu = c.nu + batch * c.step_of_nu + j;
  const Sixteen lengths = sixteen(x.bits), negative = sixteen(x.negative);
  Longs bits[2], exponents[2];
  for (int half = 0; half < 2; half++) {
    bits[half] = converted<Longs>(lengths.halves[half]);
    const Longs scaled = bits[half] - mu - some_integers(nu + 8 * half, count - 8 * half);
    exponents[half] = select(bits[half] == 0, Longs{}, scaled);
    if (!none((exponents[half] < -900) | (exponents[half] > 900) | (bits[half] > 900))) return false;
  }
  const Ints top = (x.bits + 31) >> 5;
  const UnsignedInts shift = (UnsignedInts)((-x.bits) & 31);
  const int least = least_of(top), largest = largest_of(top);
  UnsignedInts rows[4], words[3];
  for (int r = 0; r < 4; r++) rows[r] = of_rows(x.rows, PANEL_LANES, top - r, least - r, largest - r, x.limbs);
  for (int r = 0; r < 3; r++) words[r] = joined(rows[r], rows[r + 1], shift);
  words[2] |= (UnsignedInts)(x.zeros < x.bits - 96) & 1;
  const Sixteen h = unsigned_sixteen(words[0]), upper_m = unsigned_sixteen(words[1] & ~2047u);
  const Sixteen lower_m = sixteen((Ints)(words[1] & 2047u)), l = unsigned_sixteen(words[2]);
  for (int half = 0; half < 2; half++) {
    round_eight(c, batch, i, j + 8 * half, count - 8 * half, h.halves[half], upper_m.halves[half], lower_m.halves[half],
                l.halves[half], negative.halves[half], bits[half], exponents[half]);
  }
  return true;
}

// Round sixteen entries of row i from column j on, of which `count` exist.
static void round_lanes(const WideResult& c, int64_t batch, int64_t i, int64_t j, int64_t count, uint32_t* rows,
                        int limbs) {
  const LaneMagnitudes x = magnitudes_of_lanes(rows, limbs);
  const int64_t mu = c.mu[batch * c.step_of_mu + i], *nu = c.nu + batch * c.step_of_nu + j;
  if (c.to_numbers) {
    const NumbersOut& to = c.numbers;
    uint32_t* first = to.limbs + batch * to.limbs_batch + i * to.limbs_row + j;
    const Ints tops = round_to_limbs(x, to.bits, first, to.of_limb, count);
    int8_t* signs = to.signs + batch * to.signs_batch + i * to.signs_row + j;
    int64_t* exponents = to.exponents + batch * to.exponents_batch + i * to.exponents_row + j;
    for (int lane = 0; lane < count && lane < LANES; lane++) {
      const bool filled = x.bits[lane] != 0;
      signs[lane] = filled ? (int8_t)(1 | x.negative[lane]) : 0;
      exponents[lane] = filled ? tops[lane] - mu - nu[lane] : 0;
    }
    return;
  }
  if (!c.result.single && round_normal(c, batch, i, j, count, x)) return;
  const Ints top = (x.bits + 31) >> 5;
  for (int lane = 0; lane < count && lane < LANES; lane++) {
    const auto limb = [&](int row) -> uint64_t { return row > 0 ? rows[row * PANEL_LANES + lane] : 0; };
    const int row = top[lane], shift = (-x.bits[lane]) & 31;
    const uint64_t upper = limb(row) << 32 | limb(row - 1), lower = limb(row - 2);
    const uint64_t head = upper << shift | lower >> (32 - shift);
    const bool inexact = x.zeros[lane] < x.bits[lane] - 64;
    const int64_t exponent = x.bits[lane] - mu - nu[lane];
    const int64_t at = batch * c.result.of_batch + i * c.result.of_rows + j + lane;
    const bool single = c.result.single;
    const double magnitude = rounded_head(head, inexact, exponent, single ? 24 : 53, single ? -149 : -1074);
    const double value = x.negative[lane] ? -magnitude : magnitude;
    if (c.undecided.flags) {
      const Undecided& u = c.undecided;
      const int64_t at_left = batch * u.step_of_left + i, at_right = batch * u.step_of_right + j + lane;
      const double error = u.left[0][at_left] * u.right[0][at_right] + u.left[1][at_left] * u.right[1][at_right];
      const uint32_t tail = (uint32_t)(lower << shift | limb(row - 3) >> (32 - shift));
      const double of_head = ldexp(error, 64 - x.bits[lane]);
      u.flags[batch * u.of_batch + i * u.of_rows + j + lane] =
          is_undecided(head, tail, exponent, single ? 24 : 53, single ? -149 : -1074, of_head);
    }
    if (single) ((float*)c.result.out)[at] = (float)value;
    else ((double*)c.result.out)[at] = value;
  }
}

}  // namespace cpu
