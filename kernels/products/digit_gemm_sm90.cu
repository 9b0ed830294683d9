// The product of two operands in few digits on Hopper, rounded to the output format:
//
//   C_ij = RN(V_ij 2^(factor - mu_i - nu_j)),  V = sum over diagonals of digit products (docs/definitions.md, 3),
//   factor = DIGIT_BITS (SLICES - 1)
//
// Neither diagonals nor digits of the product reach memory (but for tiles that are split along k).
//
// Macros: OUTPUT (double or float); SLICES <= 3; DIGIT_BITS (8 or 7). Or, in place of OUTPUT, FORMAT (BFloat16 or
// Float16) with OF_COLUMNS: the rows of A have SLICES digits, up to 4, the columns of B OF_COLUMNS, no more; factor = 8
// (OF_COLUMNS - 1), and of the rows those of one kind are multiplied (rows_of_kind.cuh). TILE_COLUMNS is then 128, or for
// two digits 192, for four 64. The wgmma of 64 x 192 read 85 bytes of shared memory a clock, those of 64 x 128 96; with
// the copies, 35 and 42, that is 120 and 138 of the 128 that there are. Tiles of B are 192 wide in memory in any case.
// With ADDEND (float) the result is that number plus c, rounded once: by float64 sums.
//
// Slices are signed bytes, stored most significant digit first for A and most significant digit last for B. Launch and
// ring are those of ring_sm90.cuh with tiles of 128 x 128. A thread has accumulators for all SLICES diagonals, so a
// block of k is copied once for each digit, not once for each pair of digits (for 4 to 7 digits see
// diagonal_gemm_sm90.cu).
//
// `blocks`: blocks of 128 along k. Exact as long as SLICES (2^DIGIT_BITS)^2 / 4 * 128 blocks < 2^31 (1 -
// 2^-DIGIT_BITS): then neither a diagonal nor the carry into it overflows int32.
//
// Phases of a tile, or of a piece of k of one of the last tiles (pieces.cuh):
// 1. Producer: write the task (which tile, how many blocks) for the first stage; copy digits 0, 1, .. of each block.
// 2. Consumers: multiply all pairs of digits as their stages arrive.
// 3. Owner of the tile: add what contributors have left (the producer copies it into the ring), round, store.
// 4. Contributor, instead of 3: write V of its part of k to `partial` and raise its flag.
//
// `partial` has for every block of the grid PLANES planes of PLANE bytes, a byte of each entry of the tile in a plane:
// SLICES - 1 digits of V below its upper part, and the four bytes of the upper part (signed). `flags` has two counters
// for each block, zero before the kernel.
//
// Float64 results that may not be normal numbers are left to digit_far_sm90.cu.
#define OTHER_TILE
#ifndef TILE_COLUMNS
#define TILE_COLUMNS 128
#endif
#ifdef FORMAT  // which rows there are takes room of the seventh stage
constexpr int MOST_STAGES = 6;
#else
constexpr int MOST_STAGES = 7;
#endif
constexpr int ROWS = 128, COLS = TILE_COLUMNS, STAGES = COLS == 192 ? 5 : MOST_STAGES;
#include "arithmetic/diagonals.cuh"
#include "hardware/launch.cuh"
#include "products/pieces.cuh"
#include "products/ring_sm90.cuh"

#ifdef FORMAT
#include "products/rows_of_kind.cuh"
#define OUTPUT FORMAT
constexpr int RIGHT = OF_COLUMNS;
#else
constexpr int RIGHT = SLICES;  // digits of B
#endif

// Accumulators of a thread for one diagonal: of rows lane / 4 + {0, 8} of the 16 rows of its warp and, of every 16
// columns, of the 4 from 4 (lane % 4) on (indexed by `accumulator` in pieces.cuh).
typedef uint32_t Diagonal[COLS / 2];
constexpr int GROUPS = COLS / 16;

// Multiplies `blocks` blocks of k; clears d first. Diagonal s gets the products of digits t and s - t, 0 <= t <= s,
// whose stages follow one another in the ring: the wgmma of diagonal s are issued when stage s of the block arrives. (From
// digit RIGHT on there is none of B.)
//
//   ring      | digit 0 | digit 1         | digit 2                    | digit 0 of the next block | ...
//   issued    | 0 x 0   | 0 x 1, 1 x 0    | 0 x 2, 1 x 1, 2 x 0        | ...
//
// The stages of a block are released when the first wgmma of the next block have been issued. On return d is complete
// and all stages are released.
__device__ __forceinline__ void multiply(Diagonal (&d)[SLICES], const Stages& stages, Ring& ring, int blocks) {
  int held[SLICES] = {};  // stages of the block before, which its wgmma may still read
#pragma unroll 1
  for (int k = 0; k < blocks; ++k) {
    uint32_t a[SLICES], b[SLICES];
    int now[SLICES];
#pragma unroll
    for (int s = 0; s < SLICES; ++s, ring.next()) {
      stages.wait(ring);
      stages.descriptors(ring, a[s], b[s]);
      now[s] = ring.stage;
      wgmma_fence();
#pragma unroll
      for (int t = larger(s - RIGHT + 1, 0); t <= s; ++t)
#pragma unroll
        for (int z = 0; z < 4; ++z)
          wgmma_bytes<int8_t>(d[s], a[t] + 2 * z, b[s - t] + 2 * z, k > 0 || t > larger(s - RIGHT + 1, 0) || z > 0);
      wgmma_commit();
      if (s == 0 && k > 0) {
        wgmma_wait<1>();
#pragma unroll
        for (int i = 0; i < SLICES; ++i) stages.release(held[i]);
      }
    }
#pragma unroll
    for (int s = 0; s < SLICES; ++s) held[s] = now[s];
  }
  wgmma_wait<0>();
#pragma unroll
  for (int s = 0; s < SLICES; ++s) {
    registers_ready(d[s]);
    stages.release(held[s]);
  }
}

// What a contributor leaves to the owner of a tile, and how many stages of the ring that fills.
constexpr int PLANE = ROWS * COLS, PLANES = SLICES + 3, OF_STAGE = STAGE_BYTES / PLANE;
constexpr int STAGES_HANDED_OVER = (PLANES + OF_STAGE - 1) / OF_STAGE;

// Stores byte j of each accumulator of this thread to a plane in global memory. With `digit` it is a digit below the
// unit of the next diagonal: DIGIT_BITS bits of it.
__device__ __forceinline__ void store_plane(const Diagonal& d, uint8_t* to, int j, bool digit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int q = 0; q < GROUPS / 4; ++q)
      __stcg(reinterpret_cast<uint4*>(to) + ((h * (GROUPS / 4) + q) * 256 + this_thread()),
             bytes_of_groups(d, h, q, j, DIGIT_BITS == 7 && digit ? 0x7f7f7f7fu : ~0u));
}
// Adds the bytes of a plane in shared memory, times `unit`, to the accumulators of this thread.
__device__ __forceinline__ void add_plane(Diagonal& d, uint32_t from, uint32_t unit) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int q = 0; q < GROUPS / 4; ++q)
      add_to_groups(d, h, q, from + 16 * ((h * (GROUPS / 4) + q) * 256 + this_thread()), unit);
}
// Writes V of this thread's entries to the planes at `to`, diagonal by diagonal from the least significant one (SLICES
// - 1) on: its lowest digit becomes a plane, the rest is carried to the next diagonal. Changes d.
__device__ __forceinline__ void hand_over(Diagonal (&d)[SLICES], uint8_t* to) {
#pragma unroll
  for (int s = SLICES - 1; s > 0; --s) {
    store_plane(d[s], to + s * PLANE, 0, true);
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i)  // carry the rest: the shift is arithmetic, so this is exact
      d[s - 1][i] += static_cast<uint32_t>(static_cast<int32_t>(d[s][i]) >> DIGIT_BITS);
  }
  store_plane(d[0], to, 0, false);
#pragma unroll
  for (int j = 1; j < 4; ++j) store_plane(d[0], to + (SLICES - 1 + j) * PLANE, j, false);
}
// Adds what `contributors` clusters have left, which the producer has copied into the next stages, to d. The planes of
// each are: the lowest bytes of diagonals 0, 1, ..., then bytes 1 .. 3 of diagonal 0.
__device__ __forceinline__ void take_over(Diagonal (&d)[SLICES], const Stages& stages, Ring& ring, int contributors) {
#pragma unroll 1
  for (int h = 0; h < contributors; ++h)
#pragma unroll
    for (int q = 0; q < STAGES_HANDED_OVER; ++q, ring.next()) {
      stages.wait(ring);
#pragma unroll
      for (int p = q * OF_STAGE; p < smaller((q + 1) * OF_STAGE, PLANES); ++p)
        add_plane(d[p < SLICES ? p : 0], stages.data + ring.stage * STAGE_BYTES + p % OF_STAGE * PLANE,
                  p < SLICES ? 1u : 1u << (8 * (p - SLICES + 1)));
      stages.release_own(ring.stage);
    }
}
// Called by the producer's thread: copies the planes of all contributors into the next stages, as each is ready.
__device__ __forceinline__ void copy_partial(const Stages& stages, Ring& ring, const uint8_t* partial,
                                             const uint32_t* flags, int contributors) {
  for (int h = 1; h <= contributors; ++h) {
    const int block = blockIdx.x - 2 * h;
    wait_for_contributor(flags, block, 1);
    for (int p = 0; p < PLANES; p += OF_STAGE, ring.next())
      stages.copy_bytes(ring, partial + (block * PLANES + p) * PLANE, smaller(OF_STAGE, PLANES - p) * PLANE);
  }
}

// Shared exponents nu of a tile's columns and mu of a warpgroup's rows.
struct __align__(16) Exponents {
  int32_t columns[COLS], rows[ROWS / CONSUMERS];
#ifdef FORMAT
  int32_t row_of[ROWS / CONSUMERS];  // the row of C at each place
#endif
};

// What consumers do next. The producer writes it for the first stage of a piece before that stage becomes full, so that
// no consumer divides while the tensor cores wait.
struct Task {
  int blocks;           // of k
  int contributors;     // clusters whose partial sums are to be added; -1: this cluster is a contributor itself
  int entry, row, col;  // batch entry, and the first row and column of this block's tile
  int more;             // 1 if another piece follows
#ifdef FORMAT
  int begin, end;  // the places of rows of the kind
#endif
};
// Batch entry, and the first row (of this warpgroup) and column of a tile in C.
struct Position {
  int entry, row, col;
};
// The position of a task's tile for this thread's warpgroup.
__device__ __forceinline__ Position position_of(const Task& task) {
  return {task.entry, task.row + static_cast<int>(this_thread()) / 128 * (ROWS / CONSUMERS), task.col};
}

// Starts to load the exponents of a tile; complete after wait_for_copies and a barrier of the warpgroup.
__device__ __forceinline__ void fetch(Exponents& exponents, const Output<OUTPUT>& to, const Position& position) {
  const int x = threadIdx.x % 128;
#pragma unroll
  for (int i = 0; i < COLS; i += 128)
    if (i + 128 <= COLS || x < COLS - i)
      copy_or_zero(exponents.columns + i + x,
                   to.nu + position.entry * to.nu_batch + smaller(position.col + i + x, to.n - 1), true);
  if (x < ROWS / CONSUMERS)
    copy_or_zero(exponents.rows + x, to.mu + position.entry * to.mu_batch + smaller(position.row + x, to.m - 1), true);
}

#ifdef FORMAT
// Rounds and stores this thread's entries of a tile.
__device__ __forceinline__ void round_and_store(const Diagonal (&d)[SLICES], const Output<OUTPUT>& to, const Task& task,
                                                const Position& position, const Exponents& exponents COMBINATION) {
  constexpr int FACTOR = 8 * (RIGHT - 1);
  const int lane = threadIdx.x % 32, of_warp = threadIdx.x % 128 / 32 * 16;
  const int col = position.col + lane % 4 * 8;
  const uint32_t nu = shared_address(exponents.columns + lane % 4 * 8);
  const auto is_row = [&](int i) { return position.row + i >= task.begin && position.row + i < task.end; };
#ifndef ADDEND
  // Whether float32 holds all entries of the warp: the extreme exponents say so.
  bool usual;
  {
    int largest = -4096, least = 4096;
#pragma unroll
    for (int i = 0; i < COLS; i += 32) {
      const int of_column = exponents.columns[i + lane];
      largest = larger(largest, of_column);
      least = smaller(least, of_column);
    }
    const bool counts = is_row(of_warp + lane % 16);
    const int mu = exponents.rows[of_warp + lane % 16];
    const int most = __reduce_max_sync(ALL, largest) + __reduce_max_sync(ALL, counts ? mu : -4096);
    const int fewest = __reduce_min_sync(ALL, least) + __reduce_min_sync(ALL, counts ? mu : 4096);
    usual = FACTOR - most >= -126 && FACTOR - fewest <= 127;
  }
#endif
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int i = of_warp + lane / 4 + 8 * h, left = is_row(i) ? to.n - col : 0;  // left: columns of C from col on
    const int exponent = FACTOR - exponents.rows[i];
    OUTPUT* const c = to.c + position.entry * to.batch + exponents.row_of[i] * to.row_stride + col;
    const auto sums_of = [&](int z, int x, int32_t (&sums)[SLICES]) {
#pragma unroll
      for (int s = 0; s < SLICES; ++s) sums[s] = static_cast<int32_t>(d[s][accumulator_of_eight(h, z, x)]);
    };
#ifndef ADDEND
    const auto round_eight = [&](int z, uint32_t (&pairs)[4]) {
#pragma unroll
      for (int x0 = 0; x0 < 8; x0 += 4) {
        int of_columns[4];
        load_again(nu + 128 * z + 4 * x0, of_columns);
        float values[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          int32_t sums[SLICES];
          sums_of(z, x0 + x, sums);
          values[x] = joined_to_odd<SLICES>(sums) *
                      float_of_bits(static_cast<uint32_t>(exponent + 127 - of_columns[x]) << 23);
        }
        pairs[x0 / 2] = rounded_pair<OUTPUT>(values[0], values[1]);
        pairs[x0 / 2 + 1] = rounded_pair<OUTPUT>(values[2], values[3]);
      }
    };
#endif
    const bool wide = left > COLS - 25 && (reinterpret_cast<uint64_t>(c) & 15) == 0;
#ifdef ADDEND
    if (left <= 0) continue;
    const float* const of_c = combination.c + position.entry * combination.batch +
                              exponents.row_of[i] * combination.row_stride + col * combination.col_stride;
#pragma unroll
    for (int z = 0; z < COLS / 32; ++z) {
      uint16_t values[8];
#pragma unroll
      for (int x = 0; x < 8; ++x) {
        const float addend = 32 * z + x < left ? of_c[(32 * z + x) * combination.col_stride] : 0.0f;
        int32_t sums[SLICES];
        sums_of(z, x, sums);
        const int scale = exponent - exponents.columns[32 * z + lane % 4 * 8 + x];
        const float v = added_to_odd(joined<SLICES>(sums), scale, addend);
        values[x] = is_finite(addend) ? static_cast<uint16_t>(rounded_pair<OUTPUT>(v, v))
                                      : special_addend<OUTPUT>(1.0, addend);
      }
      if (wide) {
        __stcs(reinterpret_cast<uint4*>(c + 32 * z),
               make_uint4(values[0] | values[1] << 16, values[2] | values[3] << 16, values[4] | values[5] << 16,
                          values[6] | values[7] << 16));
      } else {
#pragma unroll
        for (int x = 0; x < 8; ++x)
          if (32 * z + x < left) reinterpret_cast<uint16_t*>(c)[32 * z + x] = values[x];
      }
    }
#else
    // As in store_groups: one branch for all groups.
    if (usual && wide) {
#pragma unroll
      for (int z = 0; z < COLS / 32; ++z) {
        uint32_t pairs[4];
        round_eight(z, pairs);
        __stcs(reinterpret_cast<uint4*>(c + 32 * z), make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
      }
    } else if (left > 0) {
#pragma unroll
      for (int z = 0; z < COLS / 32; ++z) {
#pragma unroll
        for (int x = 0; x < 8; ++x) {
          int32_t sums[SLICES];
          sums_of(z, x, sums);
          const float v = scaled_to_odd(joined_to_odd<SLICES>(sums), exponent - exponents.columns[32 * z + lane % 4 * 8 + x]);
          if (32 * z + x < left) reinterpret_cast<uint16_t*>(c)[32 * z + x] = static_cast<uint16_t>(rounded_pair<OUTPUT>(v, v));
        }
      }
    }
#endif
  }
}
#else
// Rounds and stores this thread's entries of a tile. (Exponents of columns are read anew for each group: no registers.)
__device__ __forceinline__ void round_and_store(const Diagonal (&d)[SLICES], const Output<OUTPUT>& to,
                                                const Task&, const Position& position, const Exponents& exponents) {
  const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16 + lane / 4, col = position.col + lane % 4 * 4;
  const uint32_t nu = shared_address(exponents.columns + lane % 4 * 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = position.row + first + 8 * h, left = row < to.m ? to.n - col : 0;  // left: columns of C from col on
    const int exponent = DIGIT_BITS * (SLICES - 1) + 1023 - exponents.rows[first + 8 * h];
    OUTPUT* const c = to.c + position.entry * to.batch + row * to.row_stride + col;
    const auto round_four = [&](int z, OUTPUT (&value)[4]) {
      int of_columns[4];
      load_again(nu + 64 * z, of_columns);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        int32_t sums[SLICES];
#pragma unroll
        for (int s = 0; s < SLICES; ++s) sums[s] = static_cast<int32_t>(d[s][accumulator(h, z, x)]);
        const double power = double_of_limbs(static_cast<uint32_t>((exponent - of_columns[x]) * (1 << 20)), 0);
        round_few_diagonals<SLICES, DIGIT_BITS>(sums, power, value[x]);
      }
    };
    store_groups<GROUPS>(c, left, round_four);
  }
}
#endif

// Bytes of a block of k of a tile of B in memory; and where the columns of tile j begin that a block of the cluster
// copies, less what `copy` adds for rank 1. A tile of 128 columns takes two strips of 64, one for each rank; one of 64
// columns a strip, half of it for each.
#ifdef FORMAT
constexpr int STRIPS = 3, STRIP_BYTES = 64 * DEPTH, B_BLOCK = STRIPS * STRIP_BYTES;
__device__ __forceinline__ int64_t columns_at(int j, uint32_t rank, int blocks) {
  if (COLS == 64 * STRIPS) return static_cast<int64_t>(j) * blocks * B_BLOCK;
  if (COLS == 64) return static_cast<int64_t>(j / STRIPS) * blocks * B_BLOCK + j % STRIPS * STRIP_BYTES;
  const int strip = 2 * j + static_cast<int>(rank);
  return static_cast<int64_t>(strip / STRIPS) * blocks * B_BLOCK + (strip % STRIPS - static_cast<int>(rank)) * STRIP_BYTES;
}
#else
constexpr int B_BLOCK = B_BYTES;
__device__ __forceinline__ int64_t columns_at(int j, uint32_t, int blocks) {
  return static_cast<int64_t>(j) * blocks * B_BLOCK;
}
#endif

// What of a product there is to multiply.
struct Work {
  Pieces pieces;
  Tiles tiles;
  Together together;
};

#ifdef FORMAT
// That of the rows that there are. It is found anew for each tile: to remember it takes registers. Of fewer rows than
// there may be no tile is split.
__device__ __forceinline__ Work of_rows(const Work& all, const RowsOfKind& rows) {
  Work work = all;
  if (work.tiles.batch > 1) return work;
  const int pairs = rows.pairs(0);
  if (pairs >= work.tiles.rows) return work;
  work.tiles.rows = pairs;
  const int whole = pairs * work.tiles.columns, clusters = gridDim.x / 2;
  work.pieces = {whole, 0, 0};
  if (work.together.until != 0) work.together.until = whole >= 2 * clusters ? whole / clusters * clusters : 0;
  return work;
}
// Piece number i of this cluster, or the first one after it that there are rows for; i becomes the next number.
__device__ __forceinline__ Piece piece_from(int& i, const Work& work, int blocks, const RowsOfKind& rows) {
  for (;;) {
    const Piece piece = piece_of(i++, work.pieces, blocks);
    if (!piece.exists || work.tiles.batch == 1) return piece;
    int entry, row, col;
    locate(piece.tile, work.tiles, entry, row, col);
    if (row < rows.pairs(entry)) return piece;
  }
}
#define OF_ROWS(work) of_rows(work, rows)
#define PIECE_FROM(i, work) piece_from(i, work, blocks, rows)
#else
#define OF_ROWS(work) work
#define PIECE_FROM(i, work) piece_of(i++, work.pieces, blocks)
#endif

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
digit_gemm(const Operand a, const Operand b, const Output<OUTPUT> output, uint8_t* partial, uint32_t* flags, int blocks,
           const Pieces pieces, const Tiles tiles, const Together together
#ifdef FORMAT
           , const RowsOfKind rows COMBINATION
#endif
           ) {
  extern __shared__ uint8_t dynamic[];
  __shared__ __align__(8) uint64_t full_barriers[STAGES], empty_barriers[STAGES];
  __shared__ Exponents exponents[CONSUMERS];
  __shared__ Task task_of_stage[STAGES];
  Stages stages;
  stages.init(dynamic, full_barriers, empty_barriers);
  after_previous();
  const uint32_t rank = cluster_rank();
  const int warpgroup = threadIdx.x / 128;
  const Work all = {pieces, tiles, together};

  if (warpgroup == CONSUMERS) {
    keep_registers<40>();
    if (threadIdx.x == 128 * CONSUMERS) {
      Ring ring;
      int w = 0;
      Piece piece = PIECE_FROM(w, OF_ROWS(all)), next;
      for (; piece.exists; piece = next) {
        const Work work = OF_ROWS(all);
        next = PIECE_FROM(w, work);
        int entry, i, j;
        locate(piece.tile, work.tiles, entry, i, j);
#ifdef FORMAT
        i = rows.pair(i);
#endif
        const int row = 2 * i + static_cast<int>(rank), contributors = contributors_of(piece, work.pieces, blocks);
        From from = {a.slices + entry * a.batch + (static_cast<int64_t>(row) * blocks + piece.first) * A_BYTES,
                     b.slices + entry * b.batch + columns_at(j, rank, blocks) +
                         static_cast<int64_t>(piece.first) * B_BLOCK};
        if (rank == 0) work.together.begin(piece.tile);
        // 1. The task, then its operand blocks, then what contributors leave.
        stages.wait_empty(ring);
        task_of_stage[ring.stage] = {piece.last - piece.first, piece.first == 0 ? contributors : -1, entry, row * ROWS,
                                     j * COLS, next.exists
#ifdef FORMAT
                                     , rows.first(entry), rows.last(entry)
#endif
                                     };
        for (int k = piece.first; k < piece.last; ++k, from.a += A_BYTES, from.b += B_BLOCK) {
          for (int s = 0; s < RIGHT; ++s)
            stages.copy(ring, {from.a + s * a.slice, from.b + (RIGHT - 1 - s) * b.slice}, 1, rank);
          for (int s = RIGHT; s < SLICES; ++s, ring.next()) stages.copy_bytes(ring, from.a + s * a.slice, A_BYTES);
        }
        copy_partial(stages, ring, partial, flags, contributors);
      }
    }
  } else {
    take_registers<232>();
    Diagonal d[SLICES];
    Ring ring;
    int w = 0;
    bool more = PIECE_FROM(w, OF_ROWS(all)).exists;
    while (more) {
      // 2. Multiply. The exponents are loaded meanwhile.
      stages.wait(ring);
      const Task task = task_of_stage[ring.stage];
      more = task.more != 0;
      if (task.contributors >= 0) {
        fetch(exponents[warpgroup], output, position_of(task));
#ifdef FORMAT
        const int place = position_of(task).row + static_cast<int>(threadIdx.x % 128);
        if (threadIdx.x % 128 < ROWS / CONSUMERS)
          copy_or_zero(exponents[warpgroup].row_of + threadIdx.x % 128, rows.row_of + task.entry * output.mu_batch + place,
                       true);
#endif
      }
      multiply(d, stages, ring, task.blocks);
      if (task.contributors >= 0) {  // 3. Owner of the tile: round and store
        take_over(d, stages, ring, task.contributors);
        wait_for_copies();
        named_barrier(1 + warpgroup, 128);
#ifdef ADDEND
        round_and_store(d, output, task, position_of(task), exponents[warpgroup], combination);
#else
        round_and_store(d, output, task, position_of(task), exponents[warpgroup]);
#endif
        named_barrier(1 + warpgroup, 128);  // all have read `exponents` before the next tile overwrites them
      } else {  // 4. Contributor: hand over
        hand_over(d, partial + static_cast<int64_t>(blockIdx.x) * (PLANES * PLANE));
        signal_owner(flags, warpgroup, 1);
      }
    }
  }
  cluster_barrier();  // no block exits while the other one may still copy into its shared memory or signal its barriers
}
