// Residues of lines in registers, and what becomes of the accumulators of their products.
//
// Macros: those of stack.cu.
#pragma once
#include "arithmetic/grouped.cuh"
#include "hardware/mma.cuh"
#include "stacks/lines.cuh"

constexpr int STEP_BITS = 2, SHIFT = 0;  // norm scaling; C = RN(Cbar 2^(SHIFT - mu - nu))

// Constants of modulus m_t: RN(1 / m_t), -m_t; and up to which magnitude of an image the quotients below are sure for
// all moduli; or, if images are SPLIT, the number of least magnitude that is 2^PLACE modulo m_t, or that less 2^PLACE.
constexpr int PLACE = 36;
template <int N> struct Cutting {
  double inverse[N];
#if SPLIT
  double place[N];
  uint32_t minus[N], low_place[N];
#else
  double sure;
  uint32_t minus[N + N % 2];
#endif
};

typedef GroupedConstants<SLICES, PLACE_COUNT> Grouped;
struct Constants {
  Cutting<SLICES> cut;
#if PARTS == 2
  uint32_t raise[SLICES + SLICES % 2];  // a multiple of m_t that no sum of products modulo m_t exceeds
#endif
  Grouped grouped;
};

// Residues from quotients in float64: with y = 2^mu x and the image X = RN(y), q = RN((y - 127.5) / m) is the low limb
// of one product, and X - q m lies in [0, 255]: it is off the middle by at most m / 2, 1/2 for the rounding of the
// image, and what the inverse is off by (ozaki/schemes/grouped.py). For one modulus, UNSURE, that may be too much for
// the largest images: there it is corrected. Four elements are reduced at once; no byte disturbs another.
//
// Longer images are split: y = H 2^PLACE + L, H whole and abs(L) <= 2^(PLACE - 1), and H place_t + L takes the place of
// y, which is congruent to it and below 2^49. That takes one more product. If some moduli, those of the bits of SURE, do
// without, y is kept, and place_t is less by 2^PLACE.
template <int PIECES> struct Slices : Lines<PIECES> {
  using Lines<PIECES>::x;  // after cut() y - 127.5, or, if SPLIT without SURE moduli, L - 127.5
  // Of the images X_i of four elements: sum_i 2^(8 i) X_i, the same for the modulus UNSURE, and their low bytes.
  uint32_t sum[2][PIECES], of_unsure[2][PIECES], low[2][PIECES];
#if SPLIT
  double high[2][4 * PIECES];
  uint32_t of_high[2][PIECES];  // sum_i 2^(8 i) H_i
#endif

  __device__ __forceinline__ void cut(const Constants& constants) {
#if !SPLIT
    const Cutting<SLICES>& c = constants.cut;
    bool unsure = false;
    if (UNSURE >= 0) {
      double most = 0;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        most = larger(most, double_of_limbs(this->largest[r], ~0u) * power_of_two(this->exponent[r]));
      unsure = __any_sync(ALL, most > c.sure);
    }
#endif
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const double by = power_of_two(this->exponent[r]);
#if SPLIT
      const double down = power_of_two(this->exponent[r] - PLACE);
#endif
#pragma unroll
      for (int i = 0; i < PIECES; ++i) {
        uint32_t image[4];
#if SPLIT
        uint32_t upper[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          double &y = x[r][4 * i + j], &whole = high[r][4 * i + j];
          whole = fused(y, down, 0x1.8p52);
          upper[j] = low_limb(bits_of(whole));
          whole -= 0x1.8p52;
          const double rest = fused(whole, -power_of_two(PLACE), y * by);
          image[j] = low_limb(bits_of(rest + 0x1.8p52));
          y = SURE != 0 ? fused(y, by, -127.5) : rest - 127.5;
        }
        of_high[r][i] = packed(upper);
#else
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          double& y = x[r][4 * i + j];
          image[j] = IMAGE_BITS <= 50 ? low_limb(bits_of(fused(y, by, 0x1.8p52)))
                                      : low_limb(static_cast<uint64_t>(nearest_integer(y * by)));
          y = fused(y, by, -127.5);
        }
#endif
        sum[r][i] = packed(image);
        low[r][i] = gather_bytes(image[0], image[1], image[2], image[3], 0);
#if !SPLIT
        if (UNSURE >= 0) of_unsure[r][i] = sum[r][i];
        if (unsure) {  // takes back what is off
          constexpr int T = UNSURE < 0 ? 0 : UNSURE;
          uint32_t off[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int rest = static_cast<int>(image[j] + quotient(x[r][4 * i + j], c.inverse[T]) * c.minus[T]);
            off[j] = rest < 0 ? ~0u : rest > 255 ? 1u : 0u;
          }
          of_unsure[r][i] += packed(off) * c.minus[T];
        }
#endif
      }
    }
  }

  // The residues modulo m_t, t a compile-time constant, of piece i of line r: four in [0, 255], a byte each.
  __device__ __forceinline__ uint32_t slice(int r, int i, int t, const Constants& constants) const {
    if (EVEN && t == 0) return low[r][i];  // modulo 256
    const Cutting<SLICES>& c = constants.cut;
    uint32_t q[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#if SPLIT
      if (!(SURE >> t & 1)) {
        q[j] = quotient(fused(high[r][4 * i + j], c.place[t], x[r][4 * i + j]), c.inverse[t]);
        continue;
      }
#endif
      q[j] = quotient(x[r][4 * i + j], c.inverse[t]);
    }
#if SPLIT
    const uint32_t images = SURE >> t & 1 ? sum[r][i] : of_high[r][i] * c.low_place[t] + sum[r][i];
#else
    const uint32_t images = t == UNSURE ? of_unsure[r][i] : sum[r][i];
#endif
    return packed(q) * c.minus[t] + images;
  }

  // sum_i 2^(8 i) v_i, modulo 2^32.
  static __device__ __forceinline__ uint32_t packed(const uint32_t (&v)[4]) {
    return ((v[3] * 256 + v[2]) * 256 + v[1]) * 256 + v[0];
  }
  // RN(y / m), modulo 2^32.
  static __device__ __forceinline__ uint32_t quotient(double y, double inverse) {
    return low_limb(bits_of(fused(y, inverse, 0x1.8p52)));
  }
};

// What a lane keeps of an entry: the sums of groups of moduli, of each part.
struct Entry {
  GroupSums<SLICES> sums[PARTS];

  struct Places {
    static constexpr int at[PLACE_COUNT] = PLACES;
  };
  static constexpr int BITS = 8 * SLICES - 1;

  // RN(Cbar power), if the exponent of that power of two is usual; and RN(Cbar 2^exponent) for any.
  template <typename T> __device__ __forceinline__ T usually(int part, double power, const Constants& c) const {
    double s[PLACE_COUNT];
    digit_sums<SLICES, Places>(sums[part].z, c.grouped, s);
    if constexpr (PLACE_COUNT > 4) return round_more_digits<T, Places>(s, power);
    else return round_few_digits<T, Places>(s, power);
  }
  template <typename T> __device__ __forceinline__ T always(int part, int exponent, const Constants& c) const {
    double s[PLACE_COUNT];
    digit_sums<SLICES, Places>(part == 0 ? sums[0].z : sums[PARTS - 1].z, c.grouped, s);
    return round_digits<T, Places, BITS>(s, exponent);
  }
};

template <bool HALF>
__device__ __forceinline__ void multiply_step(uint32_t (&d)[4], const uint4& u, uint32_t b, uint32_t b_next) {
  if constexpr (HALF) multiply_bytes(d, d, u.x, u.y, b);
  else multiply_bytes(d, d, u.x, u.y, b, u.z, u.w, b_next);
}

// The entries that a lane has of 16 x 16 of C, or of 16 x 8. load(operand, slice, step) gives a fragment: with HALF a
// step has one piece, so that only the limbs x, y of A and x, z of B are there; of 8 columns B's have x, y alone. Of
// parts x, y and u, v modulo m the products are x u - y v, raised, and x v + y u.
template <int STEPS, bool HALF, int ENTRIES, typename Load>
__device__ __forceinline__ void multiply(Entry (&entries)[ENTRIES], Load load, const Constants& c) {
#pragma unroll
  for (int t = 0; t < SLICES; ++t) {
#if PARTS == 2
    uint32_t real[4] = {}, minus[4] = {}, imaginary[4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const uint4 x = load(0, 2 * t, step), y = load(0, 2 * t + 1, step);
      const uint4 u = load(1, 2 * t, step), v = load(1, 2 * t + 1, step);
      multiply_step<HALF>(real, x, u.x, u.y);
      multiply_step<HALF>(minus, y, v.x, v.y);
      multiply_step<HALF>(imaginary, x, v.x, v.y);
      multiply_step<HALF>(imaginary, y, u.x, u.y);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      entries[j].sums[0].add(t, real[j] - minus[j] + c.raise[t], c.grouped);
      entries[j].sums[1].add(t, imaginary[j], c.grouped);
    }
#else
    uint32_t d[EIGHTS][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const uint4 u = load(0, t, step), v = load(1, t, step);
      multiply_step<HALF>(d[0], u, v.x, v.y);
      if (EIGHTS > 1) multiply_step<HALF>(d[EIGHTS - 1], u, v.z, v.w);
    }
#pragma unroll
    for (int j = 0; j < 4 * EIGHTS; ++j) entries[j].sums[0].add(t, d[j / 4][j % 4], c.grouped);
#endif
  }
}
