// Residue products with few inner indices, and their results, in one kernel: C = RN(Cbar 2^-(mu_i + nu_j)). A block has
// the accumulators of all moduli for its tile of C, so nothing is written but C. The bits are those of residue_gemm and
// recombine.cu: the same integers, rounded once.
//
// Macros: ROUNDED: 1, or 0 to leave the bytes y_t = (A_t B_t) mod m_t at y[t * y_stride + batch entry * y_batch + row *
// ld + column], ld a multiple of 4, for what else may become of a product; SLICES: the moduli, 4 to 18; STEPS: steps of
// 32 inner indices, 1 to 8; RESIDENT: whether B's tile stays in shared memory for a run of tiles; STAGES: of the ring.
// With ROUNDED also OUTPUT (double or float), PLACE_COUNT and PLACES, a list in braces, and SMALL (folded.cuh).
//
// a and b are residues in [0, m_t) in tiles (hardware/tiles.cuh) of ROWS rows of A and of COLS columns of B, NEIGHBOURS
// = 0, of one block of 128 inner indices, or of two. Rows of 128 bytes that are not filled have those of SHARED = 2 or 4
// moduli, one after the other, and count as one slice.
//
// What bounds it, for 14 residues and k = 64, by entry of C (a warp has 32 entries in the time of one; an H100 has 132
// times four warps at work in a clock): about 110 instructions, of which 31 are float64 ones and 20 products of integers,
// two clocks each in pipes of their own; 42 clocks of shared memory (84 with k = 128), of which wgmma reads 1.5 bytes for
// each 32 inner indices. 9 / 19 bytes come from the second-level cache, 8 go to stages. (residue_gemm multiplies two
// blocks of 128 at least; it and recombine.cu write and read 14 bytes more, in three times the memory's time.)
//
// Launch: 512 threads, any number of blocks on x; each takes every gridDim.x-th run of tiles. Dynamic shared memory: the
// ring, STAGES * STAGE_BYTES, after it HELD_BYTES, and 1024 to align both.
//   warpgroup 3          the producer, one thread of which issues all copies (cp.async.bulk)
//   warpgroups 0 .. 2    all rows and 32 columns of the tile each; a lane has rows g and g + 8, and of every eight
//                        columns two neighbours. Its 16 entries have GROUPS registers each. For each modulus t:
//       wgmma            of modulus t, into accumulators[t % 2]
//       registers        accumulators of modulus t - 1 are added to z of its group (grouped.cuh), while wgmma runs
//       after the last one: digits, rounding, stores (folded.cuh)
// Warpgroups wait for copies, not for one another: one may round while another multiplies the next tile.
#include "hardware/launch.cuh"
#include "hardware/ptx.cuh"
#include "hardware/tiles.cuh"
#include "products/product.cuh"
#if ROUNDED
#include "arithmetic/folded.cuh"
#else
#include "arithmetic/residues.cuh"
#endif

constexpr int ROWS = 64, COLS = 96, DEPTH = 128, CONSUMERS = 3, THREADS = 128 * (CONSUMERS + 1);
constexpr int BLOCKS = (STEPS + 3) / 4, SHARED = STEPS == 1 ? 4 : STEPS == 2 ? 2 : 1;
constexpr int CHUNKS = (SLICES + SHARED - 1) / SHARED * BLOCKS;  // stages that a tile takes
constexpr int A_BYTES = ROWS * DEPTH, B_BYTES = COLS * DEPTH, STAGE_BYTES = RESIDENT ? A_BYTES : A_BYTES + B_BYTES;
static_assert(STAGES > BLOCKS, "");

#if ROUNDED
typedef FoldedConstants<SLICES, PLACE_COUNT> Constants;
typedef BitsOf<OUTPUT>::type Bits;
#define RESULT const Output<OUTPUT> out, const __grid_constant__ Constants constants
#else
#define RESULT uint8_t* __restrict__ y, int64_t y_stride, int64_t y_batch, int64_t ld, int m, const AccumulatorModuli moduli
#endif

// Runs of at most `run` tiles, one below the other; runs are walked matrix by matrix, in it group by group of `group`
// rows of runs, in a group column by column.
struct Tiles {
  int rows, columns;  // of tiles, in one matrix
  int run, group;
  int runs;           // of all matrices
};
struct Run {
  int matrix, first, end, column;  // its tiles: rows `first` to `end` of tiles

  __device__ __forceinline__ Run(uint32_t r, const Tiles& tiles) {
    const uint32_t high = (tiles.rows + tiles.run - 1) / tiles.run, each = high * tiles.columns;
    matrix = r / each;
    const uint32_t rest = r % each, in_group = tiles.group * tiles.columns, above = rest / in_group * tiles.group;
    const uint32_t q = rest % in_group, height = smaller<uint32_t>(tiles.group, high - above);
    first = (above + q % height) * tiles.run, end = smaller<int>(first + tiles.run, tiles.rows);
    column = q / height;
  }
};

// Whether a tile begins at a stage that is a multiple of CHUNKS or, if there are no more stages than CHUNKS, at the first
// one: then the stages of its chunks are constants, or constants beside that.
constexpr bool FIXED = STAGES % CHUNKS == 0 || CHUNKS % STAGES == 0;

// A place in the ring: the stage, and the parity of the phase that its barriers are in.
struct Place {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  // Of chunk c, a compile-time constant, of a tile that begins here.
  __device__ __forceinline__ Place of_chunk(int c) const {
    if constexpr (!FIXED) {
      const bool around = stage + c % STAGES >= STAGES;
      return {stage + c % STAGES - (around ? STAGES : 0), parity ^ (around ? 1u : 0u) ^ c / STAGES % 2};
    }
    if constexpr (STAGES % CHUNKS == 0) return {stage + c, parity};
    return {c % STAGES, parity ^ c / STAGES % 2};
  }
  // To the next tile.
  __device__ __forceinline__ void next_tile() {
    if constexpr (FIXED && STAGES % CHUNKS == 0) {
      stage += CHUNKS;
      if (stage == STAGES) stage = 0, parity ^= 1;
    } else {
      *this = of_chunk(CHUNKS);
    }
  }
};

// Shared-memory addresses. Chunk c of B's tile lies at held + c * B_BYTES, with barriers of its own, if RESIDENT.
struct Stages {
  uint32_t ring, held, full, empty, arrived, free;

  // By all threads.
  __device__ __forceinline__ void init(uint8_t* dynamic, uint64_t* barriers, uint32_t* descriptor) {
    ring = (shared_address(dynamic) + 1023) & ~1023u, held = ring + STAGES * STAGE_BYTES;
    full = shared_address(barriers), empty = full + 8 * STAGES;
    arrived = empty + 8 * STAGES, free = arrived + 8 * CHUNKS;
    if (threadIdx.x == 0) {
      *descriptor = tile_descriptor(ring);
      for (int s = 0; s < STAGES; ++s) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, CONSUMERS);
      for (int c = 0; RESIDENT && c < CHUNKS; ++c) barrier_init(arrived + 8 * c, 1), barrier_init(free + 8 * c, CONSUMERS);
      barrier_init_fence();
    }
    __syncthreads();
  }
};

// By one thread: copies all that the consumers of this block read.
__device__ __forceinline__ void produce(const Stages& stages, const Tiles& tiles, const Operand& a, const Operand& b) {
  constexpr int64_t A_TILE = A_BYTES * BLOCKS, B_TILE = B_BYTES * BLOCKS;
  Place place;
  uint32_t parity = 0;  // of the barriers of B
#pragma unroll 1
  for (int r = blockIdx.x; r < tiles.runs; r += gridDim.x, parity ^= 1) {
    const Run run(r, tiles);
    const uint8_t* const of_b = b.slices + run.matrix * b.batch + run.column * B_TILE;
#pragma unroll 1
    for (int i = run.first; i < run.end; ++i) {
      const uint8_t* const of_a = a.slices + run.matrix * a.batch + i * A_TILE;
#pragma unroll 1
      for (int c = 0; c < CHUNKS; ++c, place.next()) {
        const int64_t slice = c / BLOCKS;
        const uint8_t* const from_a = of_a + slice * a.slice + c % BLOCKS * A_BYTES;
        const uint8_t* const from_b = of_b + slice * b.slice + c % BLOCKS * B_BYTES;
        if (RESIDENT && i == run.first) {
          barrier_wait(stages.free + 8 * c, parity ^ 1);
          barrier_expect(stages.arrived + 8 * c, B_BYTES);
          bulk_copy(stages.held + c * B_BYTES, from_b, B_BYTES, stages.arrived + 8 * c);
        }
        const uint32_t to = stages.ring + place.stage * STAGE_BYTES, full = stages.full + 8 * place.stage;
        barrier_wait(stages.empty + 8 * place.stage, place.parity ^ 1);
        barrier_expect(full, STAGE_BYTES);
        bulk_copy(to, from_a, A_BYTES, full);
        if (!RESIDENT) bulk_copy(to + A_BYTES, from_b, B_BYTES, full);
      }
    }
  }
}

#if ROUNDED
// What a lane keeps of an entry.
struct Entry : GroupSums<SLICES> {
  struct Places {
    static constexpr int at[PLACE_COUNT] = PLACES;
  };
  static constexpr int BITS = 8 * SLICES - 1;
  static constexpr bool ALWAYS = PLACE_COUNT > 4;  // whether any exponent is usual

  // The bits of RN(Cbar 2^exponent), for any exponent.
  __device__ __forceinline__ Bits always(int exponent, const Constants& c) const {
    double s[1][PLACE_COUNT];
    folded_digit_sums<SMALL, SLICES>([&](int, int g) { return z[g]; }, c, s);
    return bits_of(round_digits<OUTPUT, Places, BITS>(s[0], exponent));
  }
};

__device__ __forceinline__ void store_pair(double* to, const uint64_t (&bits)[2]) {
  __stcs(reinterpret_cast<ulonglong2*>(to), make_ulonglong2(bits[0], bits[1]));
}
__device__ __forceinline__ void store_pair(float* to, const uint32_t (&bits)[2]) {
  __stcs(reinterpret_cast<uint2*>(to), make_uint2(bits[0], bits[1]));
}

// Exponents of a lane's rows and columns of a tile, those beyond the last ones like these. Entry 4 q + 2 r + i is in row
// g + 8 r and column 8 q + 2 h + i.
struct Exponents {
  int mu[2], nu[8];

  // `whole`: all of them exist.
  __device__ __forceinline__ void load_rows(const Output<OUTPUT>& out, int matrix, int row, bool whole) {
    const int32_t* const at = out.mu + matrix * out.mu_batch;
    const int second = whole ? row + 8 : smaller(row + 8, out.m - 1);
    mu[0] = at[whole ? row : smaller(row, out.m - 1)], mu[1] = at[second];
  }
  __device__ __forceinline__ void load_columns(const Output<OUTPUT>& out, int matrix, int col, bool whole) {
    const int32_t* const at = out.nu + matrix * out.nu_batch + col;
    if (whole) {
#pragma unroll
      for (int j = 0; j < 8; ++j) nu[j] = at[8 * (j / 2) + j % 2];
    } else {
      const int most = static_cast<int>(hidden(out.n - 1 - col));  // else addresses would be kept from tile to tile
#pragma unroll
      for (int j = 0; j < 8; ++j) nu[j] = at[smaller(8 * (j / 2) + j % 2, most)];
    }
  }
  __device__ __forceinline__ int of(int entry) const { return -mu[entry / 2 % 2] - nu[entry / 4 * 2 + entry % 2]; }
  __device__ __forceinline__ bool usual() const {
    int least = nu[0], most = nu[0];
#pragma unroll
    for (int j = 1; j < 8; ++j) least = smaller(least, nu[j]), most = larger(most, nu[j]);
    bool all = true;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      all = all && is_usual<OUTPUT, Entry::BITS>(-mu[r] - least) && is_usual<OUTPUT, Entry::BITS>(-mu[r] - most);
    return all || Entry::ALWAYS;
  }
};

constexpr int AT_ONCE = 1;

// Rounds COUNT entries, whose exponents are usual, step by step, so that they do not wait for one another.
template <int COUNT, typename Exponent>
__device__ __forceinline__ void round_usual(const Entry* entries, Exponent exponent, const Constants& constants,
                                            Bits (&bits)[COUNT / 2][2]) {
  double s[COUNT][PLACE_COUNT];
  folded_digit_sums<SMALL, SLICES>([&](int e, int g) { return entries[e].z[g]; }, constants, s);
#pragma unroll
  for (int e = 0; e < COUNT; ++e) {
    Bits& own = bits[e / 2][e % 2];
    if constexpr (Entry::ALWAYS) own = bits_of(round_digits<OUTPUT, Entry::Places, Entry::BITS>(s[e], exponent(e)));
    else own = bits_of(round_few_digits<OUTPUT, Entry::Places>(s[e], power_of_two(exponent(e))));
  }
}

// Rounds and stores the entries of a lane. `whole`: all of them exist, and pairs of them are aligned.
__device__ __forceinline__ void finish(const Entry (&entries)[16], const Exponents& exponents,
                                       const Output<OUTPUT>& out, int matrix, int row, int col, bool whole,
                                       const Constants& constants) {
  OUTPUT* const c = out.c + matrix * out.batch + row * out.row_stride + col;
  if (__all_sync(ALL, exponents.usual())) {
    // Some columns at a time, with branches between them: else the compiler mixes the work for all, and has no registers.
#pragma unroll
    for (int q = 0; q < 4; q += AT_ONCE) {
      Bits bits[2 * AT_ONCE][2];
      round_usual<4 * AT_ONCE>(entries + 4 * q, [&](int i) { return exponents.of(4 * q + i); }, constants, bits);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        OUTPUT* const at = c + 8 * r * out.row_stride + 8 * q;
        if (whole) {
#pragma unroll
          for (int p = 0; p < AT_ONCE; ++p) store_pair(at + 8 * p, bits[2 * p + r]);
        } else if (row + 8 * r < out.m) {
#pragma unroll
          for (int j = 0; j < 2 * AT_ONCE; ++j)
            if (col + 8 * (q + j / 2) + j % 2 < out.n)
              reinterpret_cast<Bits*>(at)[8 * (j / 2) + j % 2] = bits[j / 2 * 2 + r][j % 2];
        }
      }
    }
    return;
  }
  // Rare: some result may be near over- or underflow.
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    const int down = 8 * (i / 2 % 2), over = 8 * (i / 4) + i % 2;
    if (row + down >= out.m || col + over >= out.n) continue;
    Entry entry = entries[0];
    int exponent = exponents.of(0);
#pragma unroll
    for (int j = 1; j < 16; ++j)
      if (i == j) entry = entries[j], exponent = exponents.of(j);
    reinterpret_cast<Bits*>(c)[down * out.row_stride + over] = entry.always(exponent, constants);
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
thin_gemm(const Operand a, const Operand b, const Tiles tiles, RESULT) {
  extern __shared__ __align__(16) uint8_t dynamic[];
  __shared__ __align__(8) uint64_t barriers[2 * STAGES + (RESIDENT ? 2 * CHUNKS : 0)];
  __shared__ uint32_t descriptor_of_ring;
  Stages stages;
  stages.init(dynamic, barriers, &descriptor_of_ring);
  after_previous();
  const int warpgroup = __shfl_sync(ALL, threadIdx.x / 128, 0);
  if (warpgroup == CONSUMERS) {
    keep_registers<24>();
    if (threadIdx.x == 128 * CONSUMERS) produce(stages, tiles, a, b);
    return;
  }
  take_registers<160>();

  const int lane = threadIdx.x % 32, down = threadIdx.x % 128 / 32 * 16 + lane / 4, across = warpgroup * 32;
  const uint32_t own_columns = across * DEPTH >> 4;
  const bool elected = threadIdx.x % 128 == 0;  // who arrives for its warpgroup
#if ROUNDED
  const uint64_t strides = static_cast<uint64_t>(out.batch | out.row_stride) * sizeof(OUTPUT);
  const bool in_pairs = ((reinterpret_cast<uint64_t>(out.c) | strides) & (2 * sizeof(OUTPUT) - 1)) == 0;
#endif
  Place next;
  uint32_t parity = 0;
#pragma unroll 1
  for (int r = blockIdx.x; r < tiles.runs; r += gridDim.x, parity ^= 1) {
    const Run run(r, tiles);
#pragma unroll 1
    for (int tile = run.first; tile < run.end; ++tile) {
      const bool first = tile == run.first, last = tile == run.end - 1;
#if ROUNDED
      const bool all_rows = (tile + 1) * ROWS <= out.m, all_columns = (run.column + 1) * COLS <= out.n;
#endif
      const int row = tile * ROWS + down, col = run.column * COLS + across + lane % 4 * 2;
      // Of each round of the ring anew, else the compiler would keep all descriptors in registers; and of lane 0, so that
      // it knows that they are uniform in a warp.
      uint32_t begin_a[(CHUNKS - 1) / STAGES + 1];
      const Place place = {__shfl_sync(ALL, next.stage, 0), __shfl_sync(ALL, next.parity, 0)};
      uint32_t d[2][16];
#if ROUNDED
      Entry entries[16];
      Exponents exponents;
#endif
#pragma unroll
      for (int t = 0; t <= SLICES; ++t) {
        if (t < SLICES) {
          const int chunk = t / SHARED * BLOCKS;  // and the next one, if BLOCKS is 2
#pragma unroll
          for (int c = chunk; c < chunk + BLOCKS; ++c) {
            if (t % SHARED != 0) continue;
            if (c % STAGES == 0)
              begin_a[c / STAGES] = __shfl_sync(ALL, *static_cast<const volatile uint32_t*>(&descriptor_of_ring), 0);
            const Place at = place.of_chunk(c);
            barrier_wait(stages.full + 8 * at.stage, at.parity);
            if (RESIDENT && first) barrier_wait(stages.arrived + 8 * c, parity);
          }
          wgmma_fence();
#pragma unroll
          for (int step = 0; step < STEPS; ++step) {
            const int c = chunk + step / 4, along = 2 * (step % 4 + t % SHARED * (4 / SHARED));
            const uint32_t begin = begin_a[c / STAGES], from_a = begin + place.of_chunk(c).stage * (STAGE_BYTES >> 4);
            const uint32_t from_b = RESIDENT ? begin + (STAGES * STAGE_BYTES + c * B_BYTES >> 4) + own_columns
                                             : from_a + (A_BYTES >> 4) + own_columns;
            wgmma_bytes<uint8_t>(d[t % 2], from_a + along, from_b + along, step > 0);
          }
          wgmma_commit();
        }
        if (t == 0) continue;
        const int of = t - 1;
        uint32_t (&own)[16] = d[of % 2];
#if ROUNDED
        if (t == SLICES) exponents.load_rows(out, run.matrix, row, all_rows);
#endif
        if (t < SLICES) wgmma_wait<1>();
        else wgmma_wait<0>();
        registers_ready(own);
        if (of % SHARED == SHARED - 1 || t == SLICES) {  // nobody of this warpgroup reads these stages any more
          const int chunk = of / SHARED * BLOCKS;
#pragma unroll
          for (int c = chunk; c < chunk + BLOCKS; ++c) {
            barrier_arrive_if(elected, stages.empty + 8 * place.of_chunk(c).stage);
            if (RESIDENT) barrier_arrive_if(elected && last, stages.free + 8 * c);
          }
        }
#if ROUNDED
#pragma unroll
        for (int e = 0; e < 16; ++e) entries[e].add(of, own[e], constants);
#else
        // Of four neighbouring columns a lane has two, of two rows; it has them all of one row if it exchanges two.
        uint8_t* const of_y = y + of * y_stride + run.matrix * y_batch;
        const bool lower = lane % 2 == 1;
        const int64_t at_row = row + (lower ? 8 : 0);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          uint32_t kept[2], got[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            kept[i] = lower ? own[4 * q + 2 + i] : own[4 * q + i];
            got[i] = __shfl_xor_sync(ALL, lower ? own[4 * q + i] : own[4 * q + 2 + i], 1);
          }
          const uint32_t four = lower ? four_residues(got[0], got[1], kept[0], kept[1], moduli.of[of])
                                      : four_residues(kept[0], kept[1], got[0], got[1], moduli.of[of]);
          const int64_t at = col - (lower ? 2 : 0) + 8 * q;
          if (at_row < m && at < ld) *reinterpret_cast<uint32_t*>(of_y + at_row * ld + at) = four;
        }
#endif
      }
      next.next_tile();
#if ROUNDED
      exponents.load_columns(out, run.matrix, col, all_columns);
      const bool whole = all_rows && all_columns && in_pairs;
      finish(entries, exponents, out, run.matrix, row, col, whole, constants);
#endif
    }
  }
}
