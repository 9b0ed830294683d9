// Lines of a product in a warp's registers: rows of A or columns of B, read and described.
//
// A warp has 16 lines. Lane 4 g + h has lines g and g + 8 (for wgmma others: `line_of_lane`), and of every 16 inner
// indices, a piece, those from 4 h to 4 h + 3: four bytes of a slice, which are a register of a fragment. (A fragment
// has others there, but A and B have the same, and a sum has no order.) SHARE warps have the same lines, one after the
// other PIECES pieces of each.
#pragma once
#include "arithmetic/fixed_point.cuh"
#include "hardware/ptx.cuh"

// Where the lines of an operand of type T lie.
template <typename T> struct Operand {
  typedef typename BitsOf<T>::type Bits;
  const Bits* x;
  int64_t batch, line, k;  // strides
  bool aligned;            // whether 16 bytes along k may be read at a time, or the parts of an element

  __device__ __forceinline__ Operand(const T* at, int64_t of_batch, int64_t of_line, int64_t of_k)
      : x(reinterpret_cast<const Bits*>(at)), batch(of_batch), line(of_line), k(of_k) {
    const uint64_t places = reinterpret_cast<uint64_t>(x) | static_cast<uint64_t>(batch | line) * sizeof(Bits);
    aligned = (places & (PARTS == 2 ? 2 * sizeof(Bits) - 1 : 15)) == 0 && (PARTS == 2 || k == 1);
  }
  // One of two operands.
  __device__ __forceinline__ Operand(const Operand& left, const Operand& right, bool of_right)
      : x(of_right ? right.x : left.x), batch(of_right ? right.batch : left.batch),
        line(of_right ? right.line : left.line), k(of_right ? right.k : left.k),
        aligned(of_right ? right.aligned : left.aligned) {}
};

// Lines without an element above 2^-424 are multiplied by 2^LIFT before all else, so that powers of two that scale them
// are normal numbers, as are all of their elements.
constexpr uint32_t LOW = 600u << 20, INFINITE = 0x7ffu << 20;
constexpr int FLAGGED = -(1 << 20);  // in place of -mu
constexpr int LIFT = 600, WIDTH = 20;  // magnitude bits, for k <= 2^20 (docs/definitions.md, section 1)

__device__ __forceinline__ void add_square(uint64_t& sum, uint32_t y) {
#if __CUDA_ARCH__
  asm("mad.wide.u32 %0, %1, %1, %0;" : "+l"(sum) : "r"(y));  // else the compiler multiplies 64 bits
#else
  sum += static_cast<uint64_t>(y) * y;
#endif
}

// What the warps of a team, those that share lines, tell one another; all of them call these functions.
template <int SHARE> struct Exchange {
  uint64_t* statistics;  // [line][SHARE], of the team
  unsigned short* tops;
  int number;  // of the team's barrier

  static constexpr uint32_t FLAG = 1u << 15;  // beside a top: NaN or Inf

  __device__ __forceinline__ void barrier() const {
    if constexpr (SHARE > 1) named_barrier(number, 32 * SHARE);
  }
  // The largest exponent field of the lines, from that of this lane's elements, and whether they have NaN or Inf, from
  // whether this warp has seen some. What was told before has been read if the team has met since.
  __device__ __forceinline__ void largest(uint32_t (&field)[2], bool (&nonfinite)[2], int part) const {
    const int lane = threadIdx.x & 31, g = lane >> 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      field[r] = larger(field[r], __shfl_xor_sync(ALL, field[r], 1));
      field[r] = larger(field[r], __shfl_xor_sync(ALL, field[r], 2));
    }
    if constexpr (SHARE > 1) {
      const uint32_t first = field[0] | (nonfinite[0] ? FLAG : 0), second = field[1] | (nonfinite[1] ? FLAG : 0);
      const uint32_t own = (lane & 1) == 0 ? first : second;
      if ((lane & 3) < 2) tops[(8 * (lane & 3) + g) * SHARE + part] = static_cast<unsigned short>(own);
      barrier();
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
          const uint32_t of = tops[(8 * r + g) * SHARE + i];
          field[r] = larger<uint32_t>(field[r], of & (FLAG - 1));
          nonfinite[r] = nonfinite[r] || of >= FLAG;
        }
    }
  }
  // The statistic, a sum or a maximum, of line g in even lanes and of line g + 8 in odd ones, from that of both lines'
  // elements of this lane.
  template <typename Merge>
  __device__ __forceinline__ uint64_t merge(const uint64_t (&of)[2], int part, Merge merged) const {
    const int lane = threadIdx.x & 31, g = lane >> 2, r = lane & 1;
    const uint64_t others = r == 0 ? of[1] : of[0];
    uint64_t own = r == 0 ? of[0] : of[1];
    own = merged(own, __shfl_xor_sync(ALL, others, 1));
    own = merged(own, __shfl_xor_sync(ALL, own, 2));
    if constexpr (SHARE > 1) {
      uint64_t* const of_line = statistics + (8 * r + g) * SHARE;
      if ((lane & 3) < 2) of_line[part] = own;
      barrier();
      own = 0;
#pragma unroll
      for (int i = 0; i < SHARE; ++i) own = merged(own, of_line[i]);
    }
    return own;
  }
};

// Which of eight lines lane 4 g + h has: g or, for wgmma, in such an order that what eight lanes store at a time lies in
// all banks (planes_sm90.cuh).
__device__ __forceinline__ int line_of_lane() {
  const int g = threadIdx.x >> 2 & 7;
  return WARPGROUPS ? g % 2 * 4 + g / 2 : g;
}

template <int PIECES> struct Lines {
  double x[2][4 * PIECES];
  int exponent[2];          // mu of the elements as they are held
  int lift[2];              // and of the elements themselves that much more
  bool nonfinite[2];
  uint32_t largest[2];      // upper limb of the largest magnitude of this lane

  // Lines `first` + g and + 8, of `lines`; from inner index `from` of k.
  template <typename T>
  __device__ __forceinline__ void load(const Operand<T>& of, int64_t product, int first, int lines, int from, int k) {
    typedef typename Operand<T>::Bits Bits;
    const int g = line_of_lane(), h = threadIdx.x & 3;
    const Bits* const at = of.x + product * of.batch + (first + g) * of.line + (from + 4 * h) * of.k;
    constexpr int AT_ONCE = 16 / sizeof(Bits);
    Bits bits[2][4 * PIECES];
    const bool inside = WHOLE || (first + 16 <= lines && from + 16 / PARTS * PIECES <= k);
    if constexpr (PARTS == 2) {
#pragma unroll
      for (int i = 0; i < PIECES / 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const Bits* const element = at + 8 * r * of.line + (16 * i + j) * of.k;
            Bits &real = bits[r][8 * i + j], &imaginary = bits[r][8 * i + 4 + j];
            if (!inside && !(first + 8 * r + g < lines && from + 4 * h + 16 * i + j < k))
              real = imaginary = 0;
            else if (of.aligned)
              load_pair(reinterpret_cast<const T*>(element), real, imaginary);
            else
              real = element[0], imaginary = element[1];
          }
    } else if (inside) {
      if (of.aligned) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int i = 0; i < 4 * PIECES; i += AT_ONCE)
            load_16_bytes(reinterpret_cast<const T*>(at + 8 * r * of.line + i / 4 * 16 + i % 4), bits[r] + i);
      } else {
#pragma unroll
        for (int i = 0; i < 4 * PIECES; ++i)
#pragma unroll
          for (int r = 0; r < 2; ++r) bits[r][i] = at[8 * r * of.line + (i / 4 * 16 + i % 4) * of.k];
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4 * PIECES; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int index = i / 4 * 16 + i % 4;
          const bool there = first + 8 * r + g < lines && from + 4 * h + index < k;
          bits[r][i] = there ? at[8 * r * of.line + index * of.k] : Bits(0);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < 4 * PIECES; ++i) x[r][i] = double_of(bits[r][i]);
  }

  // The largest magnitude among this lane's elements of line r, and its exponent field.
  __device__ __forceinline__ void find_largest(int r, uint32_t (&field)[2]) {
    largest[r] = 0;
#pragma unroll
    for (double y : x[r]) largest[r] = larger(largest[r], high_limb(bits_of(y)) & 0x7fffffffu);
    field[r] = largest[r] >> 20;
  }

  // mu of both lines (docs/definitions.md, sections 1 and 2), by norm scaling (STEP_BITS = 2) or max scaling (1).
  template <int STEP_BITS, int SHARE>
  __device__ __forceinline__ void describe(const Exchange<SHARE>& exchange, int part, int base, int64_t threshold) {
    uint32_t field[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) nonfinite[r] = false, lift[r] = 0, find_largest(r, field);
    if (__any_sync(ALL, larger(field[0], field[1]) == 0x7ff)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        nonfinite[r] = (__ballot_sync(ALL, field[r] == 0x7ff) >> (threadIdx.x & 28) & 15) != 0;
#pragma unroll
        for (double& y : x[r])
          if ((high_limb(bits_of(y)) & INFINITE) == INFINITE) y = 0.0;
        find_largest(r, field);
      }
    }
    exchange.largest(field, nonfinite, part);
    if (__any_sync(ALL, smaller(field[0], field[1]) < LOW >> 20)) {  // the same for warps that share lines
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const bool low = field[r] < LOW >> 20;
        lift[r] = low ? LIFT : 0;
#pragma unroll
        for (double& y : x[r]) y *= low ? 0x1p600 : 1.0;
        find_largest(r, field);
      }
      exchange.barrier();  // all have read what was told before
      exchange.largest(field, nonfinite, part);
    }
    uint64_t statistic[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // ceil(abs(x) 2^(WIDTH - top)), as FastCeiling has it: the sum of squares, or the largest.
      const double factor = double_of_limbs((WIDTH + 1022 + 1023 - larger(field[r], 1u)) << 20, 0);
      uint32_t peak = 0;
      statistic[r] = 0;
#pragma unroll
      for (double y : x[r]) {
        const uint32_t magnitude = low_limb(bits_of(fused_up(fabs(y), factor, 0x1p52)));
        if (STEP_BITS == 2) add_square(statistic[r], magnitude);
        else peak = larger(peak, magnitude);
      }
      if (STEP_BITS == 1) statistic[r] = peak;
    }
    const uint64_t total =
        exchange.merge(statistic, part, [](uint64_t a, uint64_t b) { return STEP_BITS == 2 ? a + b : larger(a, b); });
    // As row_exponent: no statistic is above the threshold (docs/definitions.md, section 2). A lane finds that of a
    // line.
    const bool odd = (threadIdx.x & 1) != 0;
    const uint32_t top = odd ? field[1] : field[0];
    const uint64_t limit = static_cast<uint64_t>(threshold);
    int g = (bit_length(limit) - bit_length(total)) >> (STEP_BITS - 1);
    if (total << (STEP_BITS * g) > limit) --g;
    const int own = top == 0 ? 0 : base + g - static_cast<int>(top) + 1022, other = __shfl_xor_sync(ALL, own, 1);
    exponent[0] = odd ? other : own, exponent[1] = odd ? own : other;
  }

  // mu of line r as it was read; -FLAGGED if it has NaN or Inf.
  __device__ __forceinline__ int exponent_or_flag(int r) const {
    const int mu = r == 0 ? exponent[0] + lift[0] : exponent[1] + lift[1];
    return (r == 0 ? nonfinite[0] : nonfinite[1]) ? -FLAGGED : mu;
  }
};
