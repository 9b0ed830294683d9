// Random projections of a product modulo two primes: C x beside A (B x), A and B the images of both operands
// (docs/checking.md). C x is summed by the kernels that recombine. A vector holds two numbers for each index, modulo
// either prime; sums of a vector are uint64, and are reduced last.
//
//   random_vector    x, uint32 [n][2]: words of Philox 4x32-10, keyed by `seed`, modulo the primes
//   project          adds the image of an operand times a vector to sums
//   reduce_sums      sums [count][2] to uint32 [count][2]
//   check_exponents  adds to wrong[0] how many exponents of slices are not those that the description of the rows gives
//   verify_sums      adds to wrong[1 + 2 b + i] how many sums of matrix b modulo prime i differ
//   flip             a fault, for tests
#include "arithmetic/fixed_point.cuh"
#include "arithmetic/projection.cuh"
#include "conversion/factors.cuh"
#include "hardware/launch.cuh"

typedef unsigned long long Sum;

#ifdef INPUT

// Macros: INPUT (double or float); LIMBS: 32-bit limbs of an image; ALONG_Q: 1 if neighbouring elements are summed, 0 if
// neighbouring elements belong to different sums (whichever lie closer together in memory); OF_SUMMED: 1 if exponents
// belong to indices that are summed (and factors to the others), else 0; INNER: 1 if there are factors.
//
// The operand is a view (matrices, p, q): element (b, p, q) = x[b sb + p sp + q sq]; sums over q go to out[b][p]. An
// operand of one matrix has sb = 0, vectors and exponents likewise.
//
// 256 threads; grid batch * ceil(p / (ALONG_Q ? 32 : 256)) * ceil(q / CHUNK), all on x. ALONG_Q: a warp owns four p, and its
// lanes share the q of a chunk; else a thread owns a p.
typedef BitsOf<INPUT>::type Bits;
constexpr int CHUNK = ALONG_Q ? 1024 : 64, OWN = ALONG_Q ? 4 : 1;

extern "C" __global__ void __launch_bounds__(256)
project(const INPUT* __restrict__ x, int64_t sb, int64_t sp, int64_t sq, int64_t count_p, int64_t count_q,
        const int32_t* __restrict__ mu, int64_t mu_batch FACTORS,
#if INNER
        int64_t factors_batch,
#endif
        const uint2* __restrict__ vector, int64_t vector_batch, Sum* __restrict__ out, int64_t out_batch) {
  after_previous();
  const uint32_t chunks = static_cast<uint32_t>((count_q + CHUNK - 1) / CHUNK);
  constexpr int OF_BLOCK = ALONG_Q ? 32 : 256;
  const uint32_t blocks = static_cast<uint32_t>((count_p + OF_BLOCK - 1) / OF_BLOCK);
  const uint32_t chunk = blockIdx.x % chunks, rest = blockIdx.x / chunks;
  const int64_t b = rest / blocks;
  const int64_t p0 = static_cast<int64_t>(rest % blocks) * OF_BLOCK + (ALONG_Q ? threadIdx.x / 32 * OWN : threadIdx.x);
  const int64_t q0 = static_cast<int64_t>(chunk) * CHUNK, end = smaller(q0 + CHUNK, count_q);
  if (p0 >= count_p) return;  // in ALONG_Q whole warps
  const Bits* const from = reinterpret_cast<const Bits*>(x) + b * sb;
  mu += b * mu_batch;
#if INNER
  factors += b * factors_batch;
#endif
  vector += b * vector_batch;

  Sum sums[OWN][PRIMES];
  int scale[OWN];
#if INNER
  double factor[OWN];
#endif
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const int64_t p = smaller(p0 + i, count_p - 1);
    scale[i] = OF_SUMMED ? 0 : mu[p];
#if INNER
    factor[i] = OF_SUMMED ? factors[p] : 1.0;
#endif
    sums[i][0] = sums[i][1] = 0;
  }
#pragma unroll 2
  for (int64_t q = q0 + (ALONG_Q ? threadIdx.x % 32 : 0); q < end; q += ALONG_Q ? 32 : 1) {
    const uint2 v = vector[q];
    const int of_q = OF_SUMMED ? mu[q] : 0;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
      Bits bits = from[smaller(p0 + i, count_p - 1) * sp + q * sq];
#if INNER
      bits = scaled_bits(bits, OF_SUMMED ? factor[i] : factors[q]);
#endif
      uint32_t limbs[LIMBS];
      image<LIMBS>(bits, OF_SUMMED ? of_q : scale[i], limbs);
      sums[i][0] += product_modulo<0>(residue_of_limbs<0, LIMBS>(limbs), v.x);
      sums[i][1] += product_modulo<1>(residue_of_limbs<1, LIMBS>(limbs), v.y);
    }
  }
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    if (ALONG_Q) {
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
        sums[i][0] += __shfl_xor_sync(ALL, sums[i][0], offset);
        sums[i][1] += __shfl_xor_sync(ALL, sums[i][1], offset);
      }
    }
    if (p0 + i >= count_p || (ALONG_Q && threadIdx.x % 32 != 0)) continue;
    Sum* const to = out + b * out_batch + (p0 + i) * PRIMES;
    atomicAdd(to, static_cast<Sum>(folded<0>(sums[i][0])));
    atomicAdd(to + 1, static_cast<Sum>(folded<1>(sums[i][1])));
  }
}

#else

// The four words of Philox 4x32-10 for the counter (index, 0, 0, 0) (J. Salmon et al., SC 2011).
__device__ __forceinline__ uint4 philox(uint64_t index, uint64_t seed) {
  uint4 c = make_uint4(low_limb(index), high_limb(index), 0, 0);
  uint32_t k0 = low_limb(seed), k1 = high_limb(seed);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(0xd2511f53u) * c.x, d = static_cast<uint64_t>(0xcd9e8d57u) * c.z;
    c = make_uint4(high_limb(d) ^ c.y ^ k0, low_limb(d), high_limb(a) ^ c.w ^ k1, low_limb(a));
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return c;
}

// 256 threads; grid ceil(n / 256). `seed` is a random number in place of an address.
extern "C" __global__ void __launch_bounds__(256) random_vector(uint64_t seed, uint2* __restrict__ x, int64_t n) {
  after_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= n) return;
  const uint4 word = philox(i, seed);
  x[i] = make_uint2(static_cast<uint32_t>((static_cast<uint64_t>(word.x) << 32 | word.y) % prime(0)),
                    static_cast<uint32_t>((static_cast<uint64_t>(word.z) << 32 | word.w) % prime(1)));
}

// 256 threads; grid ceil(count / 256).
extern "C" __global__ void __launch_bounds__(256)
reduce_sums(const Sum* __restrict__ sums, uint2* __restrict__ to, int64_t count) {
  after_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= count) return;
  to[i] = make_uint2(static_cast<uint32_t>(sums[2 * i] % prime(0)), static_cast<uint32_t>(sums[2 * i + 1] % prime(1)));
}

// 256 threads; grid ceil(count / 256). `description` and `statistic` as in split.cu, without the largest elements in
// place of tops; of each matrix of it `rows` rows have exponents here, from `first` on.
extern "C" __global__ void __launch_bounds__(256)
check_exponents(const int64_t* __restrict__ description, int64_t batch_rows, int64_t of_matrix, int64_t first, int64_t count,
          int64_t rows, int statistic, int step, int base, int64_t threshold, const int32_t* __restrict__ mu,
          uint32_t* __restrict__ wrong) {
  after_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= count) return;
  const int64_t at = i / rows * of_matrix + first + i % rows;
  if (described_exponent<uint64_t, false>(description, batch_rows, at, statistic, step, base, threshold) != mu[i])
    atomicAdd(wrong, 1u);
}

// 256 threads; grid ceil(batch rows / 256).
extern "C" __global__ void __launch_bounds__(256)
verify_sums(const Sum* __restrict__ found, const Sum* __restrict__ expected, int64_t batch, int64_t rows,
       uint32_t* __restrict__ wrong) {
  after_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= batch * rows) return;
  for (int of = 0; of < PRIMES; ++of)
    if (found[2 * i + of] % prime(of) != expected[2 * i + of] % prime(of))
      atomicAdd(wrong + 1 + PRIMES * (i / rows) + of, 1u);
}

// One thread flips bits of a byte: a fault, for tests (ozaki/backends/cupy/steps/faults.py).
extern "C" __global__ void flip(uint8_t* at, uint32_t mask) {
  after_previous();
  *at ^= static_cast<uint8_t>(mask);
}

#endif
