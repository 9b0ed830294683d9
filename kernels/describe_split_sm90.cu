// The description of an operand's rows and their slices in one read, on Hopper (docs/design.md, sections 3 to 6).
//
// Macros: those of split.cu, with TILE > 0 and without LARGEST; SUMS: 1 for a whole description, 0 for the fields that
// tops.cu writes, where the scaling reads the peak; CLUSTER and HELD as held_rows_sm90.cuh has them.
//
// Arguments as those of split.cu; description is written, `width` are its magnitude bits. k_padded is at most
// CLUSTER * share, share a multiple of 128.
//
// Grid batch * rows_padded / ROWS clusters, all on x; EXCHANGED + ROWS * share * sizeof(INPUT) bytes of dynamic shared
// memory.
// When a cluster has put its rows together, each block cuts the slices of what it holds.
#include "cut.cuh"
#include "held_rows_sm90.cuh"
#include "launch.cuh"

struct Exchanged {
#if SUMS
  Tops tops[ROWS];
  Sums<1> sums[ROWS];
#else
  Largest largest[ROWS];
#endif
  int scales[ROWS];
};
static_assert(sizeof(Exchanged) <= EXCHANGED, "");

// f(element in shared memory), with less code.
template <typename F> __device__ __forceinline__ void each_slowly(Bits* at, int blocks, F f) {
#pragma unroll 1
  for (int i = 0; i < 4 * blocks; ++i) f(at[NEXT_BLOCK * (i / 4) + HALF * (i / 2 % 2) + NEXT * (i % 2)]);
}

// NaN and Inf are zero from then on.
__device__ __forceinline__ Tops tops_of_lane(Bits* at, int blocks) {
  Extremes extremes;
  each(at, blocks, [&](Bits bits) { extremes.see(bits); });
  if (extremes.tell()) return extremes.tops();
  Tops t = NOTHING;
  each_slowly(at, blocks, [&](Bits& bits) {
    const Parts p = parts(bits);
    note(t, p);
    if (!p.finite) bits = 0;
  });
  return t;
}
__device__ __forceinline__ Tops find_tops(Bits* at, int blocks) {
  const Tops t = tops_of_lane(at, blocks);
  return {__reduce_max_sync(ALL, t.top), __reduce_min_sync(ALL, t.smallest), __reduce_add_sync(ALL, t.nonfinite)};
}
__device__ __forceinline__ Sums<1> find_sums(Bits* at, int blocks, int width, int top) {
  Adding<1> sum;
  if (top > FastTop<Bits>::value) {
    const FastCeiling<Bits> ceiling(width, top);
    each(at, blocks, [&](Bits bits) { sum.add(ceiling(bits, sum.inexact)); });
  } else if (top != EMPTY_TOP) {
    each_slowly(at, blocks, [&](Bits bits) {
      const Rounded r = ceil_magnitude(parts(bits), width, top);
      sum.inexact |= r.inexact ? 1u : 0u;
      sum.add(r.value);
    });
  }
  // At most 48 elements of a lane, y <= 2^20: their squares in 24 bits and 21.
  const uint32_t low = __reduce_add_sync(ALL, low_word(sum.squares[0]) & 0xffffffu);
  const uint32_t high = __reduce_add_sync(ALL, low_word(sum.squares[0] >> 24));
  return {__reduce_max_sync(ALL, sum.peak),
          __reduce_or_sync(ALL, sum.inexact) != 0 ? 1u : 0u,
          {__reduce_add_sync(ALL, sum.magnitudes[0])},
          {(static_cast<uint64_t>(high) << 24) + low}};
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(BLOCK, (WORDS <= 1 ? 768 : 512) / BLOCK)
describe_split(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
               int64_t rows_padded, int64_t k_padded, int64_t* __restrict__ description, int64_t batch_rows, int width,
               int statistic, int step, int base, int64_t threshold, int32_t* __restrict__ mu_out,
               int8_t* __restrict__ slices, int64_t batch_stride, int64_t slice_stride, int share MORE_ARGUMENTS) {
  after_previous();
  extern __shared__ __align__(16) uint8_t dynamic[];
  Exchanged& exchanged = *reinterpret_cast<Exchanged*>(dynamic);
  Bits* const elements = reinterpret_cast<Bits*>(dynamic + EXCHANGED);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = share / BLOCK_K;
  const uint32_t rank = cluster_rank(), groups = static_cast<uint32_t>(rows_padded / ROWS);
  const uint32_t group = blockIdx.x / CLUSTER % groups, b = blockIdx.x / CLUSTER / groups;
  const int64_t row0 = static_cast<int64_t>(group) * ROWS, h0 = static_cast<int64_t>(rank) * share;
  load(elements, x + b * sb, sb, sr, sk, row0, h0, share, rows, k);
  fill_folds(BLOCK MORE);
  wait_for_copies();
  __syncthreads();

  // CLUSTER lanes put a row of the warp together.
  const int own = OWN * warp, row = own + lane / CLUSTER % OWN;
  const auto start = [&](int i) { return elements + place(own + i, 2 * lane); };
#if SUMS
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const Tops t = find_tops(start(i), blocks);
    if (lane == 0) exchanged.tops[own + i] = t;
  }
  cluster_barrier();
  const Tops t = of_cluster(exchanged.tops[row]);
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const Sums<1> s = find_sums(start(i), blocks, width, __shfl_sync(ALL, t.top, CLUSTER * i));
    if (lane == 0) exchanged.sums[own + i] = s;
  }
  cluster_barrier();
  const Sums<1> s = of_cluster(exchanged.sums[row]);
  const int64_t read = static_cast<int64_t>(statistic == SQUARES ? s.squares[0] : s.peak);
  const int mu = row_exponent(t.top, read, step, base, threshold);
#else
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const Largest t = find_largest(start(i), blocks);
    if (lane == 0) exchanged.largest[own + i] = t;
  }
  cluster_barrier();
  const Largest t = of_cluster(exchanged.largest[row]);
  const int64_t largest = static_cast<int64_t>(t.magnitude);
  const int mu = described_exponent<Bits, true>(&largest, 1, 0, width, step, base, threshold);
#endif
  if (lane % CLUSTER == 0 && lane < CLUSTER * OWN) {
    exchanged.scales[row] = scale_of(mu, t.nonfinite != 0);
    if (rank == 0 && row0 + row < rows) {
      const int64_t index = b * rows + row0 + row;
      mu_out[index] = mu;
#if SUMS
      store(description, batch_rows, index, t, s.peak, s.magnitudes[0], s.squares[0], (s.rest & 1) != 0, width);
#else
      description[index] = largest, description[NONFINITE * batch_rows + index] = t.nonfinite;
#endif
    }
  }
  __syncthreads();
  cluster_arrive();  // this block has read what others left

  const int rows_at = 8 * (warp % GROUPS), first = static_cast<int>(group % (TILE / ROWS)) * ROWS + rows_at;
  const int scale = exchanged.scales[rows_at + (lane & 7)];
  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / BLOCK_K), first_block = rank * blocks;
  int8_t* const out = slices + b * batch_stride + static_cast<int64_t>(group / (TILE / ROWS)) * blocks_k * (TILE * BLOCK_K);
#pragma unroll 1
  for (int j = warp / GROUPS; j < blocks && first_block + j < blocks_k; j += WARPS / GROUPS)
    cut_rows(scale, out + static_cast<int64_t>(first_block + j) * (TILE * BLOCK_K), first, 0, slice_stride,
             [&](int r, Bits (&bits)[8]) {
#pragma unroll
               for (int i = 0; i < 2; ++i)
                 load_four(elements + NEXT_BLOCK * j + place(rows_at + r + i, 2 * lane), bits + 4 * i);
             });
  cluster_wait();
}
