// Description and slices of an operand in one read of it, on Hopper (docs/definitions.md, sections 1 to 4). Whole rows
// stay in shared memory between the measurement that gives their exponents and the cut: of one block, or of a cluster
// of two or four blocks that share each row.
//
// Macros: those of split.cu, with TILE > 0 and without LARGEST, and
// - SUMS: 1 for a whole description; 0 for the fields that tops.cu writes, enough where the scaling reads the peak
// - RIGHT, with SUMS: 1 for the right operand, whose magnitudes lie in other tiles
// - HELD: rows of a group, 1, 2, 4 or, without SUMS, 8; along the rows a multiple of 16 bytes
// - SHARING: warps that share a group, 4 (all warps of the block) or 1 (each warp has a group; HELD > 1)
// - CLUSTER: blocks that share a group, each a part of k: 1 or, if SHARING is 4, 2 or, without SUMS, 4
// - FEW: 1 if shared memory holds fewer than four blocks anyway, so that threads may use more registers
//
// Arguments as those of split.cu; `beside` as launch.cuh explains. `description` is written here, `width` is its number
// of magnitude bits. With SUMS the magnitudes that the proof multiplies are written as well, where wanted. Rows from
// rows_padded on are not touched. Block `rank` of a cluster holds elements [rank * share, (rank + 1) * share) of each
// row, share a multiple of 128, k_padded <= CLUSTER * share.
//
// 128 threads; grid batch * rows_padded / (GROUPS * HELD) clusters, all on x; EXCHANGED + GROUPS * HELD * share *
// sizeof(INPUT) bytes of dynamic shared memory. A warp works on every SHARING-th block of 128 elements, of all rows of
// its group, and cuts the elements that it has described. Phases:
// 1. Load the rows into shared memory (asynchronous copies).
// 2. Describe the own elements (SUMS: tops; else the largest magnitude).
// 3. Exchange: every warp sends its measures of each row to all blocks of the cluster; each block merges them. With
//    SUMS, 2 and 3 a second time, for the sums, now that the row's top is known.
// 4. The rows' exponents mu; one warp of the cluster stores them and the description.
// 5. Magnitudes for the proof, if wanted.
// 6. Cut: images, slices, store.
//
// The exchange in a cluster; the same table is in each block's shared memory, at the same address:
//
//   warp w of block r   st.async: its measures -> table[row][SHARING r + w] of every block, counted in bytes by the
//                       mbarrier `arrived` of the receiving block
//   every warp          waits until all bytes of its own block's table have arrived, then LANES lanes merge a row
//
// So no block waits for more than the measures that it needs, and there is no barrier of the whole cluster after the
// start (when mbarriers are initialised).
#include "conversion/cut.cuh"
#include "conversion/largest.cuh"
#include "hardware/launch.cuh"
#include "arithmetic/magnitudes.cuh"
#include "hardware/ptx.cuh"

constexpr int THREADS = 128, ROWS = HELD, GROUPS = THREADS / 32 / SHARING;
constexpr int PARTS = CLUSTER * SHARING;          // warps that have a part of a row
constexpr int LANES = smaller(PARTS, 32 / ROWS);  // neighbouring lanes that merge the measures of a row

constexpr int EXCHANGED = 1152;  // bytes of dynamic shared memory before the elements: the tables of the exchange
template <typename T> struct OfParts {
  T of[GROUPS][ROWS][PARTS];
};
struct Exchanged {
#if SUMS
  OfParts<Tops> tops;
  OfParts<Sums<1>> sums;
#else
  OfParts<Largest> largest;
#endif
};
static_assert(sizeof(Exchanged) <= EXCHANGED, "");

__shared__ __align__(8) uint64_t arrived[2];  // mbarriers of the first and, with SUMS, the second exchange

// The proof's magnitudes floor(abs(x) 2^(width - top)), in tiles as `magnitudes` of proof.cu writes them, of the first
// `of_block` elements (a multiple of 8) of every 128. Batch entries are `batch` bytes apart; to = nullptr if none are
// wanted. Block 0 also clears `cleared` 64-bit numbers at `results` for the kernels of the proof, unless results is
// nullptr.
struct Magnitudes {
  int8_t* to;
  int64_t batch, k_padded;
  int of_block, width;
  uint64_t* results;
  int cleared;
};

constexpr int PACK = 16 / sizeof(INPUT);

// The elements of a group's rows in shared memory, `share` of each row. They are permuted so that both the 16-byte
// copies into them and the reads of a warp are free of bank conflicts.
struct Elements {
  Bits* first;
  int share;

  // Address of element h of the j-th block of 128 of a row.
  __device__ __forceinline__ Bits* at(int row, int j, int h) const {
#if ALONG_K
    return first + ((j * ROWS + row) * TILE_K + h);
#else
    constexpr int UNITS = ROWS / PACK;  // of 16 bytes
    const int unit = (h * UNITS + row / PACK) ^ (UNITS == 1 ? h >> 3 & 1 : h >> 2 & 3);
    return first + (j * (ROWS * TILE_K) + unit * PACK + row % PACK);
#endif
  }
};

// Loads this lane's elements 64 half + 2 lane + {0, 1}, half = 0, 1, of each row of block j.
__device__ __forceinline__ void read_block(const Elements& elements, int j, Bits (*bits)[4]) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#if ALONG_K
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      load_pair(reinterpret_cast<const INPUT*>(elements.at(r, j, 64 * half + 2 * lane)), bits[r][2 * half],
                bits[r][2 * half + 1]);
#else
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int r = 0; r < ROWS; r += PACK) {
        Bits unit[PACK];
        load_16_bytes(reinterpret_cast<const INPUT*>(elements.at(r, j, 64 * half + 2 * lane + e)), unit);
#pragma unroll
        for (int i = 0; i < PACK; ++i) bits[r + i][2 * half + e] = unit[i];
      }
#endif
  }
}
// Loads elements h .. h + 7 of a row of block j.
__device__ __forceinline__ void read_eight(const Elements& elements, int row, int j, int h, Bits (&bits)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += ALONG_K ? PACK : 1) {
#if ALONG_K
    load_16_bytes(reinterpret_cast<const INPUT*>(elements.at(row, j, h + i)), bits + i);
#else
    bits[i] = *elements.at(row, j, h + i);
#endif
  }
}
// Calls f(row, element) for each element of this lane.
template <typename F> __device__ __forceinline__ void each(const Elements& elements, F f) {
#pragma unroll 2
  for (int j = threadIdx.x / 32 % SHARING; j < elements.share / TILE_K; j += SHARING) {
    Bits bits[ROWS][4];
    read_block(elements, j, bits);
#pragma unroll
    for (int i = 0; i < 4 * ROWS; ++i) f(i / 4, bits[i / 4][i % 4]);
  }
}
// Calls f(reference to the element in shared memory) for this lane's elements of one row. A loop with little code, for
// rare cases.
template <typename F> __device__ __forceinline__ void each_slowly(const Elements& elements, int row, F f) {
#pragma unroll 1
  for (int j = threadIdx.x / 32 % SHARING; j < elements.share / TILE_K; j += SHARING)
#pragma unroll 1
    for (int h = threadIdx.x % 32; h < TILE_K; h += 32) f(*elements.at(row, j, h));
}

// 1. Load the elements of all groups of the block, one group after the other, into shared memory: `rows` rows and `k`
// elements of each are read, the rest becomes zero. AT_ONCE elements with each copy (16 bytes, or one element).
constexpr int ALL_ROWS = GROUPS * ROWS;
template <int COUNT> __device__ __forceinline__ void copy(Bits* to, const Bits* from, bool readable) {
  if (COUNT == 1) copy_or_zero(to, from, readable);
  else copy_16_bytes_or_zeros(to, from, readable);
}
template <int AT_ONCE>
__device__ __forceinline__ void load(Bits* to, const Bits* from, int64_t sr, int64_t sk, int share, int rows, int k) {
#if ALONG_K
  constexpr int RUNS = AT_ONCE * THREADS / TILE_K;  // runs of 128 elements that the block copies at once
  const int first = AT_ONCE * threadIdx.x, run = first / TILE_K, at = first % TILE_K, row0 = run % ALL_ROWS;
#pragma unroll 4
  for (int j = run / ALL_ROWS; j < share / TILE_K; j += larger(RUNS / ALL_ROWS, 1)) {
    const int h = j * TILE_K + at;
    const Bits* here = from + (row0 * sr + h * sk);
#pragma unroll
    for (int i = 0; i < larger(ALL_ROWS / RUNS, 1); ++i, here += RUNS * sr) {
      const int row = row0 + i * RUNS;
      const Elements elements = {to + row / ROWS * (ROWS * share), share};
      copy<AT_ONCE>(elements.at(row % ROWS, j, at), here, row < rows && h < k);
    }
  }
#else
  constexpr int THREADS_OF_K = ALL_ROWS / AT_ONCE, STEP = THREADS / THREADS_OF_K;
  const int row = threadIdx.x % THREADS_OF_K * AT_ONCE, first = threadIdx.x / THREADS_OF_K;
  const Elements elements = {to + row / ROWS * (ROWS * share), share};
  const Bits* here = from + (row * sr + first * sk);
#pragma unroll 2
  for (int j = 0; j < share / TILE_K; ++j)
#pragma unroll smaller(TILE_K / STEP, 4)
    for (int at = 0; at < TILE_K; at += STEP, here += STEP * sk)
      copy<AT_ONCE>(elements.at(row % ROWS, j, first + at), here, row < rows && j * TILE_K + first + at < k);
#endif
}

// Called by one thread before any block sends: `barrier` completes when `bytes` bytes have arrived.
__device__ __forceinline__ void expect(uint64_t& barrier, int bytes) {
  barrier_init(shared_address(&barrier), 1);
  barrier_expect(shared_address(&barrier), bytes);
}
// 3. Exchange. found[r] is what this warp has measured of row r, the same in all lanes. Returns the measures of the
// whole row number lane / LANES % ROWS, merged from all PARTS warps.
template <typename T>
__device__ __forceinline__ T of_parts(OfParts<T>& exchanged, const T (&found)[ROWS], uint64_t& barrier) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = warp / SHARING;
  const int part = (CLUSTER == 1 ? 0 : cluster_rank() * SHARING) + warp % SHARING;
  if (CLUSTER == 1) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (lane == 0) exchanged.of[group][r][part] = found[r];
    if (SHARING > 1) __syncthreads();
    else __syncwarp();
  } else {
    const uint32_t there = shared_address(&barrier);
    if (lane < CLUSTER) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int i = 0; i < sizeof(T) / 4; ++i)
          send_to_block(shared_address(&exchanged.of[group][r][part]) + 4 * i, lane,
                        reinterpret_cast<const uint32_t*>(&found[r])[i], there);
    }
    barrier_wait(there, 0);
  }
  const T* const of_row = exchanged.of[group][lane / LANES % ROWS];
  T t = of_row[lane % LANES];
#pragma unroll
  for (int part = LANES; part < PARTS; part += LANES) merge(t, of_row[lane % LANES + part]);
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) merge(t, across(t, offset));
  return t;
}

// 2. The tops of this warp's elements of each row. Replaces NaN and Inf in shared memory by zero. `inexact` becomes
// true if each row is known to have an element whose abs(x) 2^(W - top) is no integer: then find_sums need not find
// out.
__device__ __forceinline__ void find_tops(const Elements& elements, Tops (&tops)[ROWS], bool& inexact) {
  Extremes extremes[ROWS];
  inexact = true;
  each(elements, [&](int r, Bits bits) { extremes[r].include(bits); });
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    Tops t;
    if (__all_sync(ALL, extremes[r].sufficient())) {
      t = extremes[r].tops();
      inexact = inexact && __any_sync(ALL, extremes[r].inexact());
    } else {
      t = NOTHING;
      inexact = false;
      each_slowly(elements, r, [&](Bits& bits) {
        const Parts p = parts(bits);
        note(t, p);
        if (!p.finite) bits = 0;
      });
    }
    tops[r] = {__reduce_max_sync(ALL, t.top), __reduce_min_sync(ALL, t.smallest), __reduce_add_sync(ALL, t.nonfinite)};
  }
}
// 2. The sums over this warp's elements of each row, relative to the tops of the whole rows.
__device__ __forceinline__ void find_sums(const Elements& elements, int width, const int (&top)[ROWS], bool inexact,
                                          Sums<1> (&sums)[ROWS]) {
  Adding<1> sum[ROWS];
  bool fast = true;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) fast = fast && (top[r] > FastTop<Bits>::value || top[r] == EMPTY_TOP);
  if (fast && inexact) {
    each(elements, [&](int r, Bits bits) { sum[r].add(FastCeiling<Bits>(width, top[r])(bits)); });
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sum[r].inexact = 1;
  } else if (fast) {
    each(elements, [&](int r, Bits bits) {
      sum[r].add(FastCeiling<Bits>(width, top[r] == EMPTY_TOP ? 0 : top[r])(bits, sum[r].inexact));
    });
  } else {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (top[r] != EMPTY_TOP)
        each_slowly(elements, r, [&](Bits bits) {
          const Rounded y = ceil_magnitude(parts(bits), width, top[r]);
          sum[r].inexact |= y.inexact ? 1u : 0u;
          sum[r].add(y.value);
        });
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    // A lane has at most 64 elements and y <= 2^20, so squares < 2^46: summed over the warp as 24 lower and 22 upper
    // bits.
    const uint32_t low = __reduce_add_sync(ALL, low_limb(sum[r].squares[0]) & 0xffffffu);
    const uint32_t high = __reduce_add_sync(ALL, low_limb(sum[r].squares[0] >> 24));
    sums[r] = {__reduce_max_sync(ALL, sum[r].peak),
               __reduce_or_sync(ALL, sum[r].inexact) != 0 ? 1u : 0u,
               {__reduce_add_sync(ALL, sum[r].magnitudes[0])},
               {(static_cast<uint64_t>(high) << 24) + low}};
  }
}
__device__ __forceinline__ uint32_t largest_of_warp(uint32_t x) { return __reduce_max_sync(ALL, x); }
__device__ __forceinline__ uint64_t largest_of_warp(uint64_t x) {
  const uint32_t high = largest_of_warp(high_limb(x));
  return static_cast<uint64_t>(high) << 32 | largest_of_warp(high_limb(x) == high ? low_limb(x) : 0u);
}
// 2. The largest finite magnitude of this warp's elements of each row, and how many are NaN or Inf.
__device__ __forceinline__ void find_largest(const Elements& elements, Largest (&largest)[ROWS]) {
#pragma unroll
  for (int r = 0; r < ROWS; ++r) largest[r] = {0, 0};
  each(elements, [&](int r, Bits bits) {
    const Bits magnitude = bits & ~SIGN;
    if (magnitude < SPECIAL) largest[r].magnitude = larger(largest[r].magnitude, magnitude);
    else ++largest[r].nonfinite;
  });
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    largest[r] = {largest_of_warp(largest[r].magnitude), __reduce_add_sync(ALL, largest[r].nonfinite)};
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1)
    __launch_bounds__(THREADS, FEW ? 3 : LIMBS <= 1 ? 6 : LIMBS == 2 && ALONG_K ? 5 : 4)
describe_split(const INPUT* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
               int64_t rows_padded, int64_t k_padded, int64_t* __restrict__ description, int64_t batch_rows, int width,
               int statistic, int step, int base, int64_t threshold, int32_t* __restrict__ mu_out,
               int8_t* __restrict__ slices, int64_t batch_stride, int64_t slice_stride, int share, int beside,
               const Magnitudes magnitudes MORE_ARGUMENTS) {
  beside_previous(beside != 0);
#if SUMS
  if (magnitudes.results != nullptr && blockIdx.x == 0 && threadIdx.x < magnitudes.cleared)
    magnitudes.results[threadIdx.x] = 0;
#endif
  if (CLUSTER > 1) {
    if (threadIdx.x == 0) {
#if SUMS
      expect(arrived[0], sizeof(OfParts<Tops>));
      expect(arrived[1], sizeof(OfParts<Sums<1>>));
#else
      expect(arrived[0], sizeof(OfParts<Largest>));
#endif
      barrier_init_fence();
    }
    cluster_arrive();
  }
  // 1. Load.
  extern __shared__ __align__(16) uint8_t dynamic[];
  Exchanged& exchanged = *reinterpret_cast<Exchanged*>(dynamic);
  Bits* const all = reinterpret_cast<Bits*>(dynamic + EXCHANGED);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = share / BLOCK_K;
  const uint32_t rank = CLUSTER == 1 ? 0 : cluster_rank(), sets = static_cast<uint32_t>(rows_padded / (GROUPS * ROWS));
  const uint32_t set = blockIdx.x / CLUSTER % sets, b = blockIdx.x / CLUSTER / sets;
  const int64_t first_row = static_cast<int64_t>(set) * (GROUPS * ROWS), h0 = static_cast<int64_t>(rank) * share;
  const Bits* const from = reinterpret_cast<const Bits*>(x) + (b * sb + first_row * sr + h0 * sk);
  const int rows_left = static_cast<int>(smaller<int64_t>(rows - first_row, GROUPS * ROWS));
  const int k_left = static_cast<int>(smaller<int64_t>(k - h0, share));
  if (aligned_along<ALONG_K>(x, sb, sr, sk) && (ALONG_K ? k_left : rows_left) % PACK == 0)
    load<PACK>(all, from, sr, sk, share, rows_left, k_left);
  else
    load<1>(all, from, sr, sk, share, rows_left, k_left);
  fill_folds(THREADS MORE);
  wait_for_copies();
  __syncthreads();
  if (CLUSTER > 1) cluster_wait();  // the other blocks have initialised their mbarriers

  // 2. and 3. Describe and exchange.
  const int group = warp / SHARING, of_group = warp % SHARING;
  const int64_t row0 = first_row + group * ROWS;
  const Elements elements = {all + group * (ROWS * share), share};
  const int row = lane / LANES % ROWS;  // whose measures this lane merges
#if SUMS
  bool inexact;
  Tops tops[ROWS];
  find_tops(elements, tops, inexact);
  const Tops t = of_parts(exchanged.tops, tops, arrived[0]);
  Sums<1> sums[ROWS];
  int top[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) top[r] = __shfl_sync(ALL, t.top, LANES * r);
  find_sums(elements, width, top, inexact, sums);
  const Sums<1> s = of_parts(exchanged.sums, sums, arrived[1]);
  const int64_t read = static_cast<int64_t>(statistic == SQUARES ? s.squares[0] : s.peak);
  const int mu = row_exponent(t.top, read, step, base, threshold);
#else
  Largest found[ROWS];
  find_largest(elements, found);
  const Largest t = of_parts(exchanged.largest, found, arrived[0]);
  const int64_t largest = static_cast<int64_t>(t.magnitude);
  const int mu = described_exponent<Bits, true>(&largest, 1, 0, width, step, base, threshold);
#endif
  // 4. Exponents.
  const int scale = scale_of(mu, t.nonfinite != 0);
  if (rank == 0 && of_group == 0 && lane % LANES == 0 && lane < LANES * ROWS && row0 + row < rows) {
    const int64_t index = b * rows + row0 + row;
    mu_out[index] = mu;
#if SUMS
    store(description, batch_rows, index, t, s.peak, s.magnitudes[0], s.squares[0], (s.rest & 1) != 0, width);
#else
    description[index] = largest, description[NONFINITE * batch_rows + index] = t.nonfinite;
#endif
  }
  const int in_tile = static_cast<int>(row0 % TILE);
#if SUMS
  // 5. Magnitudes for the proof: unit u is 8 neighbouring positions of row u % ROWS, computed by one lane.
  constexpr int OF_PROOF = RIGHT ? 192 : 256;  // rows of a tile of magnitudes
  if (magnitudes.to != nullptr) {
    const int wanted = magnitudes.of_block, c0 = static_cast<int>(rank) * blocks * wanted;
    const int end = rank == CLUSTER - 1 ? static_cast<int>(magnitudes.k_padded) : c0 + blocks * wanted;
    int8_t* const to = magnitudes.to + b * magnitudes.batch + row0 / OF_PROOF * OF_PROOF * magnitudes.k_padded;
    const int in_proof = static_cast<int>(row0 % OF_PROOF);
#pragma unroll 1
    for (int u = 32 * of_group + lane; u - lane < (end - c0) / 8 * ROWS; u += 32 * SHARING) {
      const int r = u % ROWS, from_c0 = u / ROWS * 8, c = c0 + from_c0;
      const int top = __shfl_sync(ALL, t.top, LANES * r), j = from_c0 / wanted;
      uint32_t value[8] = {};
      if (j < blocks) {
        Bits bits[8];
        read_eight(elements, r, j, from_c0 % wanted, bits);
        magnitudes_of(bits, magnitudes.width, top, value);
      }
      const int at = tile_offset(permuted_column<RIGHT ? 16 : 0>(in_proof + r), c % TILE_K / 16) + c % 16;
      if (c < end) store(to + c / TILE_K * (OF_PROOF * TILE_K) + at, value);
    }
  }
#endif

  // 6. Cut.
  const uint32_t blocks_k = static_cast<uint32_t>(k_padded / BLOCK_K), first_block = rank * blocks;
  // Blocks of this part of k that exist.
  const int own = smaller(blocks, static_cast<int>(blocks_k - smaller(first_block, blocks_k)));
  constexpr int BLOCK_BYTES = TILE * BLOCK_K;
  int8_t* const out = slices + b * batch_stride + (row0 / TILE * blocks_k + first_block) * BLOCK_BYTES;
  int scales[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) scales[r] = __shfl_sync(ALL, scale, LANES * r);
  // Two runs of 128 elements at a time: of two rows, or (ROWS = 1) two blocks of one row, SECOND_BLOCK apart.
  constexpr int SECOND_BLOCK = ROWS == 1 ? SHARING : 0;
#pragma unroll 1
  for (int j = of_group; j < own; j += SHARING + SECOND_BLOCK) {
    const bool second = j + SECOND_BLOCK < own;
    Bits bits[larger(ROWS, 2)][4];
    read_block(elements, j, bits);
    if (ROWS == 1) read_block(elements, second ? j + SECOND_BLOCK : j, bits + 1);
#pragma unroll
    for (int r = 0; r < larger(ROWS, 2); r += 2) {
      uint32_t bytes[8][LENGTH];
      int at[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int of_run = ROWS == 1 ? 0 : r + i;
        make_images<4>(bits[r + i], scales[of_run], bytes + 4 * i);
        at[i] = permuted_column<NEIGHBOURS>(in_tile + of_run);
      }
      cut_two(bytes, out + static_cast<int64_t>(j) * BLOCK_BYTES, slice_stride, count, second,
              [&](int run, int piece) { return run * SECOND_BLOCK * BLOCK_BYTES + tile_offset(at[run], piece); });
    }
  }
  after_both();
}
