// Largest elements and low-precision words of an operand in one read of it, on Hopper (docs/definitions.md, section 7).
//
// Macros: those of cut_words.cuh, with TILE > 0; ALONG_K: 1 if neighbouring threads read along k, 0 if along the rows;
// HELD: rows of a group, 16, or 32 if ALONG_K is 0; CLUSTER: 1, 2, 4 or 8 blocks; WARPS of a block, at most 16.
//
// Arguments as those of split_words.cu, with these besides: `batch`; the fields of the description that tops.cu writes
// are written here; *lost becomes 1 if an element is below 2^floor when it is scaled (lost may be null); `beside` as
// launch.cuh explains. k_padded is at most CLUSTER * WARPS * SLABS * SLAB_K.
//
// Grid: any number of clusters, all on x; RING + 3 sizeof(Exchanged) bytes of dynamic shared memory. Clusters are
// persistent and take groups of HELD rows in turn; each warp of a cluster owns SLABS = 2 slabs of a group, SLAB_K
// elements of k of all its rows. A warp has a ring of three slabs of its own, and cp.async fills it while it works:
//
//   ring of a warp   | group g, slab 0 | group g, slab 1 | group g + 1, slab 0 |
//   after the cut    | group g + 1, slab 1 | group g + 2, slab 0 | ...         each slab is refilled when it is cut
//
// Phases for each group:
// 1. Wait for the group's two slabs.
// 2. Largest and smallest magnitude of each row in them.
// 3. Exchange: red.max of the largest into `exchanged` of every block of the cluster; barrier of the cluster.
// 4. Exponents; one warp stores them and the description; note elements below 2^floor.
// 5. Cut the slabs into words, store, refill.
//
// `exchanged` has three sets, used in turn: one is read by warps of this group, one may already be raised by blocks
// that are at the next group, and one is cleared by warp 0 for the group after it. Because of
// the barrier in phase 3 no block of a cluster is more than one group further than another one.
#define INPUT float
#include "words/cut_words.cuh"
#include "conversion/largest.cuh"
#include "hardware/launch.cuh"
#include "hardware/ptx.cuh"

constexpr int ROWS = HELD, SLAB = 1024, SLAB_K = SLAB / ROWS, SLABS = 2, STAGES = 3;
constexpr int RING = 4 * STAGES * SLAB * WARPS;
constexpr int SLAB_BYTES = SLAB_K * WIDTH;  // bytes of a row of a slab in one word
constexpr int SHARE = 128 / TOGETHER;       // bytes of a row of a tile block that belong to one word

// A warp goes through a slab in PASSES passes. In a pass a lane has eight elements of one row, which become 16 bytes of
// words (TF32: 32): PACK neighbours from element PACK * piece on and, of TF32, the PACK half a slab further on.
constexpr int PASSES = 4, PACK = 16 / WIDTH, PIECES = SLAB_K / 8, PASS_ROWS = ROWS / PASSES;
__device__ __forceinline__ int piece_of(int lane) { return lane % PIECES; }
__device__ __forceinline__ int row_of(int lane, int pass) { return PASS_ROWS * pass + lane / PIECES; }

// The largest magnitude (its bits) and the number of NaN and Inf of each row of a group, merged from the whole cluster.
struct Exchanged {
  uint32_t magnitude[ROWS], nonfinite[ROWS];
};

// The bits of the float32 2^e: a nonnegative number is below 2^e if its bits are below these. 0 if 2^e is below
// float32.
__device__ __forceinline__ uint32_t bits_of_power(int e) {
  const int beyond = e + 149;  // of the smallest subnormal number
  return e >= -126 ? static_cast<uint32_t>(e + 127) << 23 : beyond > 0 ? 1u << beyond : 0;
}

// Position of element (row, h) in a slab: permuted so that 16-byte copies and the reads of a warp are free of bank
// conflicts.
__device__ __forceinline__ int place(int row, int h) {
#if ALONG_K
  return row * SLAB_K + ((h >> 2 ^ (PACK == 8 ? h >> 5 & 1 : 0)) << 2) + (h & 3);
#elif HELD == 32
  return h * ROWS + ((row >> 2 ^ 2 * (h / PACK & 3)) << 2) + (row & 3);
#else
  return (h ^ (h / (4 * PACK) & 1)) * ROWS + ((row >> 2 ^ (h / PACK & 3)) << 2) + (row & 3);
#endif
}

// The slabs of a warp in the order in which it loads them.
struct Slabs {
  const Bits* x;
  int64_t sb, sr, sk, rows, k;
  uint32_t groups, all;  // groups of a batch entry, and of all batch entries
  int64_t h;             // the first element of k of the warp
  bool aligned;          // 16 bytes may be copied at a time
  uint32_t group;        // group of the next slab to load
  int slab;              // and its number in the group

  // Starts to copy the next slab to `to`, as one group of cp.async; an empty group after the last slab.
  __device__ __forceinline__ void load(Bits* to) {
    if (group < all) {
      const int lane = threadIdx.x & 31;
      const int64_t row0 = static_cast<int64_t>(group % groups) * ROWS, h0 = h + slab * SLAB_K;
      const Bits* from = x + group / groups * sb + row0 * sr + h0 * sk;
      const int rows_left = static_cast<int>(smaller<int64_t>(rows - row0, ROWS));
      const int k_left = static_cast<int>(larger<int64_t>(smaller<int64_t>(k - h0, SLAB_K), 0));
#if ALONG_K
      if (aligned) {
        const int at = 4 * (lane & 15), row = lane >> 4;
        const int readable = 4 * larger(smaller(k_left - at, 4), 0);
        from += row * sr + at;
#pragma unroll
        for (int i = 0; i < ROWS / 2; ++i, from += 2 * sr)
          copy_16_bytes(to + place(row + 2 * i, at), from, row + 2 * i < rows_left ? readable : 0);
      } else {
        from += lane * sk;
#pragma unroll 4
        for (int i = 0; i < ROWS; ++i, from += sr)
#pragma unroll
          for (int at = 0; at < SLAB_K; at += 32)
            copy_or_zero(to + place(i, lane + at), from + at * sk, i < rows_left && lane + at < k_left);
      }
#else
      if (aligned) {
        constexpr int QUADS = ROWS / 4, AT_ONCE = 32 / QUADS;
        const int at = lane / QUADS, row = 4 * (lane % QUADS);
        const int readable = 4 * larger(smaller(rows_left - row, 4), 0);
        from += row + at * sk;
#pragma unroll
        for (int i = 0; i < SLAB_K; i += AT_ONCE, from += AT_ONCE * sk)
          copy_16_bytes(to + place(row, at + i), from, at + i < k_left ? readable : 0);
      } else {
        const int at = lane / ROWS, row = lane % ROWS;
        from += row * sr + at * sk;
#pragma unroll 4
        for (int i = 0; i < SLAB_K; i += 32 / ROWS, from += 32 / ROWS * sk)
          copy_or_zero(to + place(row, at + i), from, row < rows_left && at + i < k_left);
      }
#endif
      if (++slab == SLABS) slab = 0, group += gridDim.x / CLUSTER;
    }
    copies_are_a_group();
  }
};

// Loads this lane's eight elements of a slab in a pass.
__device__ __forceinline__ void read(const Bits* slab, int pass, uint32_t (&bits)[8]) {
  const int lane = threadIdx.x & 31, piece = piece_of(lane), row = row_of(lane, pass), apart = piece >> 2;
#if ALONG_K
  const Bits* const at = slab + row * SLAB_K + PACK * piece;
  load_16_bytes(reinterpret_cast<const float*>(at + (PACK == 8 ? 4 * apart : 0)), bits);
  load_16_bytes(reinterpret_cast<const float*>(at + (PACK == 8 ? 4 - 4 * apart : SLAB_K / 2)), bits + 4);
#else
  const Bits* const at = slab + PACK * ROWS * piece + ((row >> 2 ^ (piece & 3) * (ROWS / 16)) << 2) + (row & 3);
  const Bits *const even = at + ROWS * apart, *const odd = at - ROWS * apart;
#pragma unroll
  for (int i = 0; i < 8; ++i) bits[i] = (i % 2 == 0 ? even : odd)[ROWS * (i % PACK + i / PACK * (SLAB_K / 2))];
#endif
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(32 * WARPS, 16 / WARPS)
tops_split_words(const float* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t batch, int64_t rows,
                 int64_t k, int64_t rows_padded, int64_t k_padded, int64_t* __restrict__ description,
                 int64_t batch_rows, int ceiling, int floor, int32_t* __restrict__ mu_out, uint8_t* __restrict__ out,
                 int64_t batch_stride, int64_t word_stride, uint32_t* __restrict__ lost, int beside) {
  beside_previous(beside != 0);
  extern __shared__ __align__(16) uint8_t dynamic[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, piece = piece_of(lane);
  Bits* const ring = reinterpret_cast<Bits*>(dynamic) + warp * STAGES * SLAB;
  Exchanged* const exchanged = reinterpret_cast<Exchanged*>(dynamic + RING);
  const uint32_t rank = cluster_rank(), groups = static_cast<uint32_t>((rows_padded + ROWS - 1) / ROWS);
  const uint32_t all = static_cast<uint32_t>(batch) * groups;
  const int64_t h = static_cast<int64_t>(rank * WARPS + warp) * (SLABS * SLAB_K);
  const bool aligned = aligned_along<ALONG_K>(x, sb, sr, sk);
  Slabs next = {reinterpret_cast<const Bits*>(x), sb, sr, sk, rows, k, groups, all, h, aligned,
                blockIdx.x / CLUSTER, 0};
  for (int i = threadIdx.x; i < 3 * 2 * ROWS; i += 32 * WARPS) reinterpret_cast<uint32_t*>(exchanged)[i] = 0;
#pragma unroll
  for (int i = 0; i < STAGES; ++i) next.load(ring + i * SLAB);
  cluster_barrier();

  const int64_t tile_bytes = k_padded * WIDTH / SHARE * (TILE * 128);
  out += h * WIDTH / SHARE * (TILE * 128);
  int at[PASSES];  // offset of the first word of this lane's elements, relative to that of the group
#pragma unroll
  for (int pass = 0; pass < PASSES; ++pass) {
    const int row = row_of(lane, pass) % 16, byte = 16 * piece;
    at[pass] = byte / SHARE * (TILE * 128) + tile_offset(permuted_column<NEIGHBOURS>(row), byte % SHARE / 16);
  }

  bool whole = true;  // no element below 2^floor so far
  int slot = 0;       // of the group's first slab in the ring
  int turn = 0;       // set of `exchanged`
  const auto slab_at = [&](int c) { return ring + (slot + c < STAGES ? slot + c : slot + c - STAGES) * SLAB; };
#pragma unroll 1
  for (uint32_t group = blockIdx.x / CLUSTER; group < all; group += gridDim.x / CLUSTER) {
    // 1. Wait.
    wait_for_groups<STAGES - SLABS>();
    __syncwarp();
    // 2. Largest and smallest; of the latter 1 is subtracted, so that zeros wrap around to the largest number.
    uint32_t largest[PASSES] = {}, smallest[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) smallest[pass] = ~0u;
#pragma unroll
    for (int c = 0; c < SLABS; ++c)
#pragma unroll
      for (int pass = 0; pass < PASSES; ++pass) {
        uint32_t bits[8];
        read(slab_at(c), pass, bits);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const uint32_t magnitude = bits[i] & ~SIGN;
          largest[pass] = larger(largest[pass], magnitude);
          smallest[pass] = smaller(smallest[pass], magnitude - 1);
        }
      }
    const uint32_t any = larger(larger(largest[0], largest[1]), larger(largest[2], largest[3]));
    uint32_t nonfinite[PASSES] = {};
    if (any >= SPECIAL) {  // NaN or Inf: a second pass that leaves them out and counts them
#pragma unroll 1
      for (int pass = 0; pass < PASSES; ++pass) {
        uint32_t finite = 0, count = 0;
#pragma unroll 1
        for (int c = 0; c < SLABS; ++c) {
          uint32_t bits[8];
          read(slab_at(c), pass, bits);
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const uint32_t magnitude = bits[i] & ~SIGN;
            if (magnitude < SPECIAL) finite = larger(finite, magnitude);
            else ++count;
          }
        }
#pragma unroll
        for (int i = 0; i < PASSES; ++i)
          if (i == pass) largest[i] = finite, nonfinite[i] = count;
      }
    }
    // 3. Exchange.
    Exchanged& now = exchanged[turn];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
      const int row = row_of(lane, pass);
#pragma unroll
      for (int offset = PIECES / 2; offset > 0; offset /= 2)
        largest[pass] = larger(largest[pass], __shfl_xor_sync(ALL, largest[pass], offset));
#pragma unroll
      for (int r = piece; r < CLUSTER; r += PIECES)
        raise_in_block(shared_address(&now.magnitude[row]), r, largest[pass]);
    }
    if (__any_sync(ALL, any >= SPECIAL)) {
#pragma unroll
      for (int pass = 0; pass < PASSES; ++pass) {
        const int row = row_of(lane, pass);
#pragma unroll
        for (int offset = PIECES / 2; offset > 0; offset /= 2)
          nonfinite[pass] += __shfl_xor_sync(ALL, nonfinite[pass], offset);
#pragma unroll
        for (int r = piece; r < CLUSTER; r += PIECES)
          add_in_block(shared_address(&now.nonfinite[row]), r, nonfinite[pass]);
      }
    }
    const int64_t b = group / groups, row0 = static_cast<int64_t>(group % groups) * ROWS;
    const int64_t first = b * rows + row0;
    cluster_barrier();

    // 4. Exponents.
    int mu[PASSES];
    bool clean = true;  // no NaN or Inf
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
      const int row = row_of(lane, pass);
      const uint32_t magnitude = now.magnitude[row], count = now.nonfinite[row];
      clean = clean && count == 0;
      mu[pass] = magnitude == 0 ? 0 : ceiling - top_exponent(parts(magnitude));
      if (rank == 0 && warp == 0 && piece == 0 && row0 + row < rows) {
        mu_out[first + row] = mu[pass];
        description[first + row] = magnitude, description[NONFINITE * batch_rows + first + row] = count;
      }
      const uint32_t kept = bits_of_power(floor - mu[pass]);
      whole = whole && !(kept > 1 && smallest[pass] < kept - 1 && magnitude != 0);
    }
    turn = turn == 2 ? 0 : turn + 1;
    if (warp == 0) {  // clear the set of the group after the next one: nobody raises it before the next barrier
      uint32_t* const later = reinterpret_cast<uint32_t*>(exchanged + (turn == 2 ? 0 : turn + 1));
#pragma unroll
      for (int i = 0; i < 2 * ROWS; i += 32) later[lane + i] = 0;
    }

    // 5. Cut.
    uint8_t* to[ROWS / 16];  // sixteen rows belong to one tile
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i) {
      const int64_t row = row0 + 16 * i;
      to[i] = out + b * batch_stride + row / TILE * tile_bytes + row % TILE * 128;
    }
#pragma unroll
    for (int c = 0; c < SLABS; ++c) {
      Bits* const slab = slab_at(c);
      if (h < k_padded) {
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
          if (ROWS > 16 && row0 + PASS_ROWS * pass >= rows_padded) break;
          uint32_t bits[8];
          read(slab, pass, bits);
          if (!clean) clear_nonfinite(bits);
          cut_words(bits, mu[pass], [&](int s, int byte) {
            const int step = c * SLAB_BYTES + byte / 16 * (SLAB_BYTES / 2);
            return to[PASS_ROWS * pass / 16] + s / TOGETHER * word_stride + step / SHARE * (TILE * 128) +
                   (at[pass] ^ (step % SHARE) ^ (s % TOGETHER * SHARE));
          });
        }
      }
      __syncwarp();
      next.load(slab);
    }
    slot = slot + SLABS < STAGES ? slot + SLABS : slot + SLABS - STAGES;
  }
  if (lost != nullptr && !__all_sync(ALL, whole) && lane == 0) *lost = 1;
  after_both();
}
