// Products of low-precision words as the tensor cores of an A100 or, CAPABILITY 90, an H100 add them:
// ozaki/tensor_core.py in C++.
#pragma once
#include "hopper.h"
#include "arithmetic/words.cuh"

inline uint32_t half_bits(float x) {
  const _Float16 half = static_cast<_Float16>(x);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}
// By bits: the compiler calls a function, which takes longer than the rest of a product.
inline float half_to_float(uint32_t halves, int i) {
  const uint32_t bits = halves >> (16 * i) & 0xffff, exponent = bits >> 10 & 31, fraction = bits & 1023;
  const uint32_t above = exponent == 31 ? 255 : exponent + 112;
  const float size = exponent == 0 ? fraction * 0x1p-24f : float_of_bits(above << 23 | fraction << 13);
  return bits >> 15 ? -size : size;
}
inline uint32_t pack_halves(float low, float high) { return half_bits(high) << 16 | half_bits(low); }

inline double two_to(int exponent) { return __longlong_as_double((exponent + 1023LL) << 52); }

// The power of two of a normal number, no less than 2^least; 0 of 0.
inline double power(double x, int least) {
  const double own = __longlong_as_double(__double_as_longlong(x) & 0x7ff0000000000000LL);
  return x == 0 ? 0 : larger(own, two_to(least));
}

constexpr int ALIGNMENT = CAPABILITY == 90 ? 25 : 24;

// Of an accumulator: the exponent of the smallest normal number of its format.
constexpr int OF_FLOAT = -126, OF_HALF = -14;

// trunc(x), without a call of a function; abs(x) < 2^63.
inline double cut(double x) { return std::copysign(static_cast<double>(static_cast<int64_t>(x)), x); }

// The accumulator plus products, aligned to the largest exponent and cut; not yet rounded.
template <int COUNT>
double fused_sum(double total, const double (&x)[COUNT], const double (&y)[COUNT], int least, int least_total) {
  double largest = larger(power(total, least_total), two_to(-126));
  for (int i = 0; i < COUNT; ++i) largest = larger(largest, power(x[i], least) * power(y[i], least));
  const double scale = two_to(ALIGNMENT) / largest;
  double units = cut(total * scale);
  for (int i = 0; i < COUNT; ++i) units += cut(x[i] * y[i] * scale);
  return units / scale;
}
// To nearest, and a step back where that is too large: setting the mode of rounding takes ten times as long.
inline float toward_zero(double x) {
  const float nearest = static_cast<float>(x);
  if (!(std::fabs(static_cast<double>(nearest)) > std::fabs(x))) return nearest;
  uint32_t bits;
  std::memcpy(&bits, &nearest, 4);
  return float_of_bits(bits - 1);
}

// Row `row` of A or column of B out of the fragments of a warp, `upper`: the registers of the row or of 8 more.
template <Word W>
void read_words(const uint32_t (&fragments)[32][6], int row, int first, int second, double (&out)[W == TF32 ? 8 : 16]) {
  for (int t = 0; t < 4; ++t) {
    const uint32_t* const own = fragments[4 * row + t];
    for (int half = 0; half < 2; ++half) {
      const uint32_t bits = own[half == 0 ? first : second];
      if (W == TF32) {
        out[4 * half + t] = float_of_bits(bits);
      } else {
        for (int i = 0; i < 2; ++i)
          out[8 * half + 2 * t + i] =
              W == FP16 ? half_to_float(bits, i) : float_of_bits(bits >> (16 * i) << 16);
      }
    }
  }
}

inline float to_half(double x) { return static_cast<float>(static_cast<_Float16>(x)); }

template <Word W, int LEAST_TOTAL, typename Round>
void multiply(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1, Round round) {
  constexpr int DEPTH = W == TF32 ? 8 : 16, FUSED = CAPABILITY == 90 ? DEPTH : DEPTH / 2, LEAST = W == FP16 ? -14 : -126;
  Group& warp = *current->warp;
  const uint32_t own[6] = {a.x, a.y, a.z, a.w, b0, b1};
  auto& fragments = warp.now().fragments;
  std::memcpy(fragments[current->lane], own, sizeof(own));
  arrive(warp);
  for (int entry = 0; entry < 4; ++entry) {
    double x[DEPTH], y[DEPTH];
    read_words<W>(fragments, current->lane / 4, entry / 2, entry / 2 + 2, x);
    read_words<W>(fragments, current->lane % 4 * 2 + entry % 2, 4, 5, y);
    for (int first = 0; first < DEPTH; first += FUSED) {
      double p[FUSED], q[FUSED];
      std::memcpy(p, x + first, sizeof(p));
      std::memcpy(q, y + first, sizeof(q));
      c[entry] = round(fused_sum(c[entry], p, q, LEAST, LEAST_TOTAL));
    }
  }
}

template <Word W> void multiply_words(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  multiply<W, OF_FLOAT>(c, a, b0, b1, toward_zero);
}
inline void multiply_words(uint32_t (&c)[2], const uint4& a, uint32_t b0, uint32_t b1) {
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = half_to_float(c[i / 2], i % 2);
  multiply<FP16, OF_HALF>(sums, a, b0, b1, to_half);
  for (int i = 0; i < 2; ++i) c[i] = pack_halves(sums[2 * i], sums[2 * i + 1]);
}

template <Word W> float word_at(const uint8_t* bytes) {
  uint32_t bits = 0;
  std::memcpy(&bits, bytes, W == TF32 ? 4 : 2);
  return W == FP16 ? half_to_float(bits, 0) : float_of_bits(W == TF32 ? bits : bits << 16);
}

// As each_entry, with the words of the rows.
template <Word W, int N, typename None, typename F> void each_of_wgmma(uint32_t a, uint32_t b, None none, F f) {
  constexpr int DEPTH = W == TF32 ? 8 : 16;
  each_entry(N, a, b, none, [&](int entry, const uint8_t (&x)[32], const uint8_t (&y)[32]) {
    double p[DEPTH], q[DEPTH];
    for (int k = 0; k < DEPTH; ++k) p[k] = word_at<W>(x + 32 / DEPTH * k), q[k] = word_at<W>(y + 32 / DEPTH * k);
    f(entry, p, q);
  });
}
template <Word W, int COUNT> void wgmma_words(float (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) {
  const auto none = [&](int entry) { d[entry] = accumulate ? d[entry] : 0.0f; };
  each_of_wgmma<W, 2 * COUNT>(a, b, none, [&](int entry, const auto& p, const auto& q) {
    d[entry] = toward_zero(fused_sum(accumulate ? d[entry] : 0.0f, p, q, W == FP16 ? -14 : -126, OF_FLOAT));
  });
}
template <int COUNT> void wgmma_halves(uint32_t (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) {
  const auto before = [&](int entry) { return accumulate ? half_to_float(d[entry / 2], entry % 2) : 0.0f; };
  const auto set = [&](int entry, float sum) {
    const int shift = 16 * (entry % 2);
    d[entry / 2] = (d[entry / 2] & ~(0xffffu << shift)) | half_bits(sum) << shift;
  };
  const auto none = [&](int entry) { set(entry, before(entry)); };
  each_of_wgmma<FP16, 4 * COUNT>(a, b, none, [&](int entry, const auto& p, const auto& q) {
    set(entry, to_half(fused_sum(before(entry), p, q, -14, OF_HALF)));
  });
}
