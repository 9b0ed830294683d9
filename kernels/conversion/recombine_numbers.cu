// From residues of any number of moduli to results: C = RN(Cbar 2^e), Cbar the exact integer (docs/definitions.md,
// sections 4 and 8), rounded once, to multiprecision numbers or to floating-point ones.
//
// Macros: MULTIPRECISION: 1 for multiprecision results, 0 for floating-point ones, of type OUTPUT (double or float);
// GROUPS, 16, 8 or 2: a block owns 8 GROUPS neighbouring columns of a row, its entries.
//
// y holds planes of bytes, [planes][rows][ld], planes plane_stride apart, matrices of a batch plane_batch; byte b_p of
// plane p counts V_p: a residue y_t in [0, m_t) has one byte or more, the lowest first, and V_p = 2^(8 j) M / m_t for
// its byte j. So
//
//   Cbar = sum_p b_p V_p - q M,  q = RN(sum_p b_p V_p / M).
//
// `weights` holds, of each p, first RN(2^32 V_p / M), a limb, then the `limbs` limbs of V_p, the lowest first, as
// bytes: as mma.sync reads them, eight limbs (32 rows of bytes) at a time, [eights][steps][2][lane][4] limbs; the first
// half has bytes 0 (rows 0 .. 7) and 1 (rows 8 .. 15) of the eight limbs, the second half bytes 2 and 3. A step is 32
// planes. minus_modulus: the limbs of 2^(32 limbs) - M. abs(Cbar) < M / 2 <= 2^(32 limbs - 1), so integers modulo 2^(32
// limbs) are enough; q is right because abs(Cbar) <= M (1/2 - 2^-10) + 1, and the sum of fractions errs by at most
// 2^-33 255 planes, less than 2^-10 for up to 2^15 planes. Sums of a limb are below 2^24 255^2 2^15 (1 + 2^-7) < 2^56.
//
// e = tops_i + tops_j - mu_i - nu_j, mu and nu int32, tops int64 or null (all 0), matrices of a batch mu_batch and
// nu_batch entries apart. Element (b, row, col) of C has index b * sb + row * sr + col * sc.
//
// 128 threads; grid batch * rows * ceil(cols / (8 GROUPS)), all on x; dynamic shared memory of 8 panel * 8 (8 GROUPS +
// 8) + 8 GROUPS * 4 (pitch + limbs) bytes. Phases: 1. bytes of the block's entries, transposed, to shared memory; 2.
// for one panel after the other of `panel` times eight limbs: sums of limbs by the tensor cores, eight limbs of a part
// of the entries a warp at a time; then one thread an entry: q, and carries; 3. one thread an entry: round, store.
//
// A part of 8 PART entries is PART groups of eight columns: entry PART g + j of a part is column g of group j, and has
// row 8 j + g of bytes. `pitch`, words from one row to the next, is an odd multiple of 4: eight rows that are read
// together, as those that are written together, lie in different banks.
#include "arithmetic/numbers.cuh"
#include "arithmetic/rounding.cuh"
#include "hardware/launch.cuh"
#include "hardware/mma.cuh"

constexpr int THREADS = 128, ENTRIES = 8 * GROUPS, SUM_PITCH = ENTRIES + 8;
constexpr int PART = GROUPS == 16 ? 4 : GROUPS, PARTS = GROUPS / PART;
constexpr int QUADS = smaller(ENTRIES / 4, 8), WORDS = 32 / QUADS;  // fours of entries, and words, that a warp loads

struct Bytes {
  const uint8_t* y;
  int64_t plane_stride, plane_batch, ld, planes;
};
struct Scales {  // of the rows of one operand
  const int32_t* mu;
  const int64_t* tops;
  int64_t batch;

  __device__ __forceinline__ int64_t exponent(int64_t b, int64_t row) const {
    const int64_t at = b * batch + row;
    return (tops == nullptr ? 0 : tops[at]) - mu[at];
  }
};

// The magnitude of an integer, whose limbs in two's complement lie ENTRIES apart, the lowest first.
struct Magnitude {
  const uint32_t* limbs;
  int count, lowest;  // limbs; the number of the lowest nonzero one
  uint32_t sign;      // 0, or all bits of a negative integer

  __device__ __forceinline__ uint32_t limb(int i) const {
    if (static_cast<uint32_t>(i) >= static_cast<uint32_t>(count)) return 0;
    return (limbs[i * ENTRIES] ^ sign) + (i <= lowest ? sign & 1 : 0);
  }
  __device__ __forceinline__ int bits() const {  // without leading zeros
    int top = count - 1;
    while (limb(top) == 0) --top;
    return 32 * (top + 1) - leading_zeros(limb(top));
  }
  __device__ __forceinline__ int trailing_zeros() const {
    const uint32_t own = limb(lowest);
    return 32 * lowest + bit_length(own & (0u - own)) - 1;
  }
  __device__ __forceinline__ uint32_t from(int bit) const {  // the 32 bits from that one on, which may be negative
    const int at = bit >> 5;
    return window_up(limb(at), limb(at + 1), bit & 31);
  }
  static __device__ __forceinline__ uint32_t window_up(uint32_t lower, uint32_t upper, int shift) {
    return low_limb((static_cast<uint64_t>(upper) << 32 | lower) >> shift);
  }
};

#if MULTIPRECISION
struct Result {
  int8_t* signs;
  int64_t* exponents;
  uint32_t* limbs;
  int64_t limb, count, bits;  // planes of limbs: how far apart, how many, and the bits that numbers are rounded to
  int64_t sb, sr, sc;

  __device__ __forceinline__ void zero(int64_t at) const {
    signs[at] = 0, exponents[at] = 0;
    for (int i = 0; i < count; ++i) limbs[i * limb + at] = 0;
  }
  __device__ __forceinline__ void store(int64_t at, const Magnitude& x, int64_t exponent) const {
    const int length = x.bits(), cut = length - static_cast<int>(bits);  // bits that are cut off, if positive
    const int spare = static_cast<int>(32 * count - bits), first = length - static_cast<int>(32 * count);
    uint64_t carry = 0;
    if (cut > 0 && (x.from(cut - 1) & 1) != 0 && (x.trailing_zeros() < cut - 1 || (x.from(cut) & 1) != 0))
      carry = 1ull << spare;
    int of_upper = first >> 5;
    uint32_t upper = x.limb(of_upper);
#pragma unroll 4
    for (int i = static_cast<int>(count) - 1; i >= 0; --i) {
      const uint32_t lower = upper;
      upper = x.limb(++of_upper);
      const uint32_t own = Magnitude::window_up(lower, upper, first & 31);
      carry += i == count - 1 ? own >> spare << spare : own;
      limbs[i * limb + at] = low_limb(carry);
      carry >>= 32;
    }
    if (carry != 0) limbs[at] = 0x80000000u;  // all others are zero
    signs[at] = x.sign != 0 ? -1 : 1;
    exponents[at] = exponent + length + static_cast<int64_t>(carry);
  }
};
#else
struct Result {
  OUTPUT* c;
  int64_t sb, sr, sc;

  __device__ __forceinline__ void zero(int64_t at) const { c[at] = 0; }
  __device__ __forceinline__ void store(int64_t at, const Magnitude& x, int64_t exponent) const {
    const int length = x.bits();
    uint32_t limbs[5] = {x.trailing_zeros() < length - 96 ? 1u : 0u, x.from(length - 96), x.from(length - 64),
                         x.from(length - 32), 0u};
    if (x.sign != 0) {
      uint64_t carry = 1;
      for (int i = 0; i < 5; ++i) {
        carry += ~limbs[i];
        limbs[i] = low_limb(carry);
        carry >>= 32;
      }
    }
    constexpr int64_t FAR = 1 << 20;
    const int64_t scale = smaller(larger(exponent + length - 128, -FAR), FAR);
    reinterpret_cast<BitsOf<OUTPUT>::type*>(c)[at] = Rounding<OUTPUT>::bits(limbs, static_cast<int>(scale));
  }
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS, GROUPS == 8 ? 3 : 4)
recombine_numbers(const Bytes bytes, const Scales left, const Scales right, const Result c, int64_t rows, int64_t cols,
                  const uint4* __restrict__ weights, const uint32_t* __restrict__ minus_modulus, int limbs, int steps,
                  int pitch, int panel) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  after_previous();
  uint64_t* const sums = reinterpret_cast<uint64_t*>(dynamic);
  const int eights = (limbs + 8) / 8;  // of limbs, and one of fractions
  uint32_t* const own = reinterpret_cast<uint32_t*>(sums + 8 * panel * SUM_PITCH);
  uint32_t* const entry = own + ENTRIES * pitch + threadIdx.x;  // limbs of this thread's entry
  const uint32_t strips = static_cast<uint32_t>((cols + ENTRIES - 1) / ENTRIES), rest = blockIdx.x / strips;
  const int64_t col0 = static_cast<int64_t>(blockIdx.x % strips) * ENTRIES;
  const int64_t row = rest % static_cast<uint32_t>(rows), b = rest / static_cast<uint32_t>(rows);
  const int lane = threadIdx.x & 31, g = lane >> 2, c4 = lane & 3;

  // 1. Bytes: word w of an entry has those of planes 4 w .. 4 w + 3.
  const uint8_t* const from = bytes.y + b * bytes.plane_batch + row * bytes.ld + col0;
  const int warp = threadIdx.x / 32, blocks = ENTRIES / 4 / QUADS;
#pragma unroll 2
  for (int i = warp; i < 8 * steps / WORDS * blocks; i += THREADS / 32) {
    const int entry = 4 * (i % blocks * QUADS + lane % QUADS), word = i / blocks * WORDS + lane / QUADS;
    const uint8_t* at = from + 4 * word * bytes.plane_stride + entry;
    const int left = col0 + entry < cols ? static_cast<int>(bytes.planes) - 4 * word : 0;
    uint32_t plane[4];
#pragma unroll
    for (int j = 0; j < 4; ++j, at += bytes.plane_stride)
      plane[j] = j < left ? __ldg(reinterpret_cast<const uint32_t*>(at)) : 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int in_part = (entry + j) % (8 * PART);
      const int row_of_entry = entry + j - in_part + 8 * (in_part % PART) + in_part / PART;
      own[row_of_entry * pitch + word] = gather_bytes(plane[0], plane[1], plane[2], plane[3], j);
    }
  }
  __syncthreads();

  const int64_t col = col0 + threadIdx.x;
  const bool inside = threadIdx.x < ENTRIES && col < cols;
  uint64_t q = 0, carry = 0;
  uint32_t limb = 0;
  int lowest = limbs;
  for (int first = 0; first < eights; first += panel) {
    // 2. Sums. Lane 8 i + j reads words 4 (i % 2) and up of row j of the first or, from i = 2 on, the second of two
    // groups.
    const int some = smaller(panel, eights - first);
    for (int item = warp; item < PARTS * some; item += THREADS / 32) {
      const int eight = item / PARTS, entry0 = 8 * PART * (item % PARTS);
      uint32_t sum[2][PART][4] = {};
      const uint4* from_weights = weights + static_cast<int64_t>(first + eight) * steps * 64 + lane;
      const uint32_t* of_step = own + (entry0 + (lane & 7) + (lane >> 4) * 8) * pitch + (lane >> 3 & 1) * 4;
      uint4 next[2][2];  // of the next step and the one after it
#pragma unroll
      for (int i = 0; i < 2; ++i, from_weights += i < steps ? 64 : 0)
        next[i][0] = __ldg(from_weights), next[i][1] = __ldg(from_weights + 32);
      for (int step = 2; step < steps + 2; ++step, of_step += 8) {
        const uint4 half[2] = {next[0][0], next[0][1]};
        next[0][0] = next[1][0], next[0][1] = next[1][1];
        next[1][0] = __ldg(from_weights), next[1][1] = __ldg(from_weights + 32);
        from_weights += step + 1 < steps ? 64 : 0;
#pragma unroll
        for (int j = 0; j < PART; j += 2) {
          uint32_t part[4];
          load_matrices(part, of_step + 8 * j * pitch);
#pragma unroll
          for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              multiply_bytes(sum[h][j + i], sum[h][j + i], half[h].x, half[h].y, part[2 * i], half[h].z, half[h].w,
                             part[2 * i + 1]);
        }
      }
      uint64_t* const to = sums + (8 * eight + g) * SUM_PITCH + entry0 + 2 * PART * c4;  // of columns 2 c4 and 2 c4 + 1
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < PART; j += 2) {
          const auto whole = [&](int group) {
            const auto part = [&](int h, int n) { return static_cast<uint64_t>(sum[h][group][2 * n + i]); };
            return part(0, 0) + (part(0, 1) << 8) + (part(1, 0) << 16) + (part(1, 1) << 24);
          };
          *reinterpret_cast<ulonglong2*>(to + PART * i + j) = make_ulonglong2(whole(j), whole(j + 1));
        }
    }
    __syncthreads();
    if (inside) {  // q from the first sum of the first panel, then carries
      const uint64_t* at = sums + threadIdx.x;
      if (first == 0) q = (*at + (1ull << 31)) >> 32, at += SUM_PITCH;
      const int begin = first == 0 ? 0 : 8 * first - 1, end = smaller(8 * (first + some) - 1, limbs);
#pragma unroll 8
      for (int l = begin; l < end; ++l, at += SUM_PITCH) {
        carry += *at + q * __ldg(minus_modulus + l);
        limb = low_limb(carry);
        if (limb != 0) lowest = smaller(lowest, l);
        entry[l * ENTRIES] = limb;
        carry >>= 32;
      }
    }
    if (first + panel < eights) __syncthreads();  // all have read the sums before those of the next panel
  }

  // 3. Entries.
  if (!inside) return;
  const int64_t at = b * c.sb + row * c.sr + col * c.sc;
  if (lowest == limbs)
    c.zero(at);
  else
    c.store(at, {entry, limbs, lowest, limb >> 31 != 0 ? ~0u : 0u}, left.exponent(b, row) + right.exponent(b, col));
}
