// The largest elements of an operand's rows and their words in one read, on Hopper (docs/design.md, section 10).
//
// Macros: those of cut_words.cuh, with TILE > 0; INPUT (float), ALONG_K, CLUSTER and HELD (16 or 32) as held_rows_sm90.cuh
// has them.
//
// Arguments as those of split_words.cu, but for the fields of the description that tops.cu writes, which are written here.
// k_padded is at most CLUSTER * share.
//
// Grid batch * ceil(rows_padded / ROWS) clusters, all on x; EXCHANGED + 4 ROWS share bytes of dynamic shared memory.
// When a cluster has put its rows together, each block cuts the words of what it holds.
#include "cut_words.cuh"
#include "held_rows_sm90.cuh"
#include "launch.cuh"

struct Exchanged {
  Largest largest[ROWS];
  int mu[ROWS];
};
static_assert(sizeof(Exchanged) <= EXCHANGED, "");

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(BLOCK, 512 / BLOCK)
tops_split_words(const float* __restrict__ x, int64_t sb, int64_t sr, int64_t sk, int64_t rows, int64_t k,
                 int64_t rows_padded, int64_t k_padded, int64_t* __restrict__ description, int64_t batch_rows, int ceiling,
                 int32_t* __restrict__ mu_out, uint8_t* __restrict__ out, int64_t batch_stride, int64_t word_stride,
                 int share) {
  after_previous();
  extern __shared__ __align__(16) uint8_t dynamic[];
  Exchanged& exchanged = *reinterpret_cast<Exchanged*>(dynamic);
  Bits* const elements = reinterpret_cast<Bits*>(dynamic + EXCHANGED);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, blocks = share / TILE_K;
  const uint32_t rank = cluster_rank(), groups = static_cast<uint32_t>((rows_padded + ROWS - 1) / ROWS);
  const uint32_t group = blockIdx.x / CLUSTER % groups, b = blockIdx.x / CLUSTER / groups;
  const int64_t row0 = static_cast<int64_t>(group) * ROWS, h0 = static_cast<int64_t>(rank) * share;
  load(elements, x + b * sb, sb, sr, sk, row0, h0, share, rows, k);
  wait_for_copies();
  __syncthreads();

  // CLUSTER lanes put a row of the warp together.
  const int own = OWN * warp, row = own + lane / CLUSTER % OWN;
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const Largest t = find_largest(elements + place(own + i, 2 * lane), blocks);
    if (lane == 0) exchanged.largest[own + i] = t;
  }
  cluster_barrier();
  const Largest t = of_cluster(exchanged.largest[row]);
  if (lane % CLUSTER == 0 && lane < CLUSTER * OWN) {
    const int mu = t.magnitude == 0 ? 0 : ceiling - top_exponent(parts(t.magnitude));
    exchanged.mu[row] = mu;
    if (rank == 0 && row0 + row < rows) {
      const int64_t index = b * rows + row0 + row;
      mu_out[index] = mu;
      description[index] = t.magnitude, description[NONFINITE * batch_rows + index] = t.nonfinite;
    }
  }
  __syncthreads();
  cluster_arrive();  // this block has read what others left

  out += b * batch_stride;
#pragma unroll 1
  for (int64_t h = h0 + tile_h(); h < smaller(h0 + share, k_padded); h += TILE_K) {
#pragma unroll
    for (int i = 0; i < 16 * ROWS / BLOCK; ++i) {
      const int r = threadIdx.x / 16 + BLOCK / 16 * i;
      const Bits* const from = elements + (h - h0) / TILE_K * NEXT_BLOCK;
      uint32_t bits[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) bits[j] = from[place(r, tile_h() + j)];
      clear_nonfinite(bits);
      if (row0 + r < rows_padded) cut_words(bits, exchanged.mu[r], out, row0 + r, h, k_padded, word_stride);
    }
  }
  cluster_wait();
}
