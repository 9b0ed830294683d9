// Residues of lines in registers, and what becomes of the accumulators of their products.
//
// Macros: those of stack.cu.
#pragma once
#include "arithmetic/grouped.cuh"
#include "arithmetic/residues.cuh"
#include "hardware/mma.cuh"
#include "stacks/lines.cuh"

constexpr int STEP_BITS = 2, SHIFT = 0;  // norm scaling; C = RN(Cbar 2^(SHIFT - mu - nu))

// Constants of modulus m_t: RN(1 / m_t), -m_t, and up to which magnitude of an image the quotients below are sure for
// all moduli.
template <int N> struct Cutting {
  double inverse[N];
  double sure;
  uint32_t minus[N + N % 2];
};

typedef GroupedConstants<SLICES, PLACE_COUNT> Grouped;
#if QUOTIENTS
typedef Cutting<SLICES> CutConstants;
#else
typedef ResidueConstants<SLICES, LIMBS> CutConstants;
#endif
struct Constants {
  CutConstants cut;
  Grouped grouped;
};

#if QUOTIENTS

// Residues from quotients in float64: with y = 2^mu x and the image X = RN(y), q = RN((y - 127.5) / m) is the low limb
// of one product, and X - q m lies in [0, 255]: it is off the middle by at most m / 2, 1/2 for the rounding of the
// image, and what the inverse is off by (ozaki/schemes/grouped.py). For one modulus, UNSURE, that may be too much for
// the largest images: there it is corrected. Four elements are reduced at once; no byte disturbs another.
template <int PIECES> struct Slices : Lines<PIECES> {
  using Lines<PIECES>::x;  // after cut() y - 127.5
  // Of the images X_i of four elements: sum_i 2^(8 i) X_i, the same for the modulus UNSURE, and their low bytes.
  uint32_t sum[2][PIECES], of_unsure[2][PIECES], low[2][PIECES];

  __device__ __forceinline__ void cut(const Constants& constants) {
    const CutConstants& c = constants.cut;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const double by = double_of_limbs(static_cast<uint32_t>(this->exponent[r] + 1023) << 20, 0);
      const bool unsure = UNSURE >= 0 && __any_sync(ALL, double_of_limbs(this->largest[r], ~0u) * by > c.sure);
#pragma unroll
      for (int i = 0; i < PIECES; ++i) {
        uint32_t image[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          double& y = x[r][4 * i + j];
          image[j] = IMAGE_BITS <= 50 ? low_limb(bits_of(fused(y, by, 0x1.8p52)))
                                      : low_limb(static_cast<uint64_t>(nearest_integer(y * by)));
          y = fused(y, by, -127.5);
        }
        sum[r][i] = packed(image);
        low[r][i] = gather_bytes(image[0], image[1], image[2], image[3], 0);
        if (UNSURE >= 0) of_unsure[r][i] = sum[r][i];
        if (unsure) {  // takes back what is off
          constexpr int T = UNSURE < 0 ? 0 : UNSURE;
          uint32_t off[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int rest = static_cast<int>(image[j] + quotient(r, 4 * i + j, c.inverse[T]) * c.minus[T]);
            off[j] = rest < 0 ? ~0u : rest > 255 ? 1u : 0u;
          }
          of_unsure[r][i] += packed(off) * c.minus[T];
        }
      }
    }
  }

  // Slice t, a compile-time constant, of piece i of line r: four residues in [0, 255], a byte each.
  __device__ __forceinline__ uint32_t slice(int r, int i, int t, const Constants& constants) const {
    if (t == 0) return low[r][i];  // modulo 256
    const CutConstants& c = constants.cut;
    uint32_t q[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) q[j] = quotient(r, 4 * i + j, c.inverse[t]);
    return packed(q) * c.minus[t] + (t == UNSURE ? of_unsure[r][i] : sum[r][i]);
  }

  // sum_i 2^(8 i) v_i, modulo 2^32.
  static __device__ __forceinline__ uint32_t packed(const uint32_t (&v)[4]) {
    return ((v[3] * 256 + v[2]) * 256 + v[1]) * 256 + v[0];
  }
  // RN((y - 127.5) / m) of element j, modulo 2^32.
  __device__ __forceinline__ uint32_t quotient(int r, int j, double inverse) const {
    return low_limb(bits_of(fused(x[r][j], inverse, 0x1.8p52)));
  }
};

#else

// Residues from the limbs of images (residues.cuh), for images of any length: these go to shared memory as they come.
template <int PIECES> struct Slices : Lines<PIECES> {
  __device__ __forceinline__ void cut(const Constants&) {}

  // Those of a step of both lines; a fragment of this lane is at `to`, that of the next slice `apart` limbs on.
  __device__ __forceinline__ void store(int step, bool right, uint32_t* to, int apart,
                                        const Constants& constants) const {
    const CutConstants& c = constants.cut;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t limbs[4][LIMBS];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          image<LIMBS>(bits_of(this->x[r][4 * (2 * step + half) + j]), this->exponent[r], limbs[j]);
          limbs[j][LIMBS - 1] ^= 0x80000000u;  // raised
        }
        uint32_t* const at = to + (right ? 2 * r + half : r + 2 * half);
#pragma unroll 2
        for (int t = 0; t < SLICES; ++t) {
          const Quotient& m = c.quotient[t];
          uint32_t residue[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            uint32_t sum = m.start;
#pragma unroll
            for (int w = 0; w < LIMBS; ++w) sum = dot_bytes(limbs[j][w], c.fold[t][w], sum);
            residue[j] = residue_of_sum(sum, m.inverse, m.addend, m.modulus);
          }
          at[t * apart] = gather_bytes(residue[0], residue[1], residue[2], residue[3], 0);
        }
      }
    }
  }
};

#endif

// What a lane keeps of an entry: the sums of groups of moduli.
struct Entry : GroupSums<SLICES> {
  struct Places {
    static constexpr int at[PLACE_COUNT] = PLACES;
  };
  static constexpr int BITS = 8 * SLICES - 1;
  static constexpr bool ALWAYS = PLACE_COUNT > 4;  // whether any exponent is usual

  // RN(Cbar 2^exponent), if the exponent is usual; and for any.
  template <typename T> __device__ __forceinline__ T usually(int exponent, const Constants& c) const {
    double s[PLACE_COUNT];
    digit_sums<SLICES>(z, c.grouped, s);
    if constexpr (ALWAYS) return round_digits<T, Places, BITS>(s, exponent);
    else return round_few_digits<T, Places>(s, exponent);
  }
  template <typename T> __device__ __forceinline__ T always(int exponent, const Constants& c) const {
    double s[PLACE_COUNT];
    digit_sums<SLICES>(z, c.grouped, s);
    return round_digits<T, Places, BITS>(s, exponent);
  }
};

// The eight entries that a lane has of 16 x 16 of C. load(operand, slice, step) gives a fragment; with HALF a step has
// one piece, so that only the limbs x, y of A and x, z of B are there.
template <int STEPS, bool HALF, typename Load>
__device__ __forceinline__ void multiply(Entry (&entries)[8], Load load, const Constants& c) {
#pragma unroll
  for (int t = 0; t < SLICES; ++t) {
    uint32_t d[2][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const uint4 u = load(0, t, step), v = load(1, t, step);
      if constexpr (HALF) {
        multiply_bytes(d[0], d[0], u.x, u.y, v.x);
        multiply_bytes(d[1], d[1], u.x, u.y, v.z);
      } else {
        multiply_bytes(d[0], d[0], u.x, u.y, v.x, u.z, u.w, v.y);
        multiply_bytes(d[1], d[1], u.x, u.y, v.z, u.z, u.w, v.w);
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) entries[j].add(t, d[j / 4][j % 4], c.grouped);
  }
}
