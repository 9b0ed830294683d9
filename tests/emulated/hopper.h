// The instructions of hardware/ptx.cuh and hardware/wgmma_words.cuh on a cluster of blocks. Asynchronous ones are over at
// once; a warpgroup waits for all of its threads where it waits for wgmma.
#pragma once
#include "cuda.h"
#include "arithmetic/common.cuh"

// An address in shared memory: variables first, dynamic memory from FIRST on.
constexpr uint32_t FIRST = 8192;
inline uint32_t shared_address(const void* p) {
  const char* const at = static_cast<const char*>(p);
  if (at >= __start_shared && at < __stop_shared) return 16 + static_cast<uint32_t>(at - __start_shared);
  return FIRST + static_cast<uint32_t>(static_cast<const uint8_t*>(p) - here->dynamic);
}
inline const char* shared_memory(uint32_t address) {
  return address < FIRST ? __start_shared + (address - 16) : reinterpret_cast<char*>(here->dynamic) + (address - FIRST);
}

inline uint32_t cluster_rank() { return blockIdx.x % blocks_of_cluster; }
inline uint32_t multiprocessor() { return blockIdx.x / 2 * 37; }
inline void cluster_barrier() { arrive(together); }
inline void cluster_arrive() {
  current->arrived_at = together.generation;
  ++together.arrived;
  together.pass();
}
inline void cluster_wait() {
  if (together.generation == current->arrived_at) wait(together.generation);
}
inline uint32_t& word_of_block(uint32_t address, uint32_t rank) {
  if (address < FIRST) {
    char* const variables = rank == cluster_rank() ? __start_shared : cluster[rank].statics;
    return *reinterpret_cast<uint32_t*>(variables + (address - 16));
  }
  return *reinterpret_cast<uint32_t*>(cluster[rank].dynamic + (address - FIRST));
}
inline uint32_t read_from_block(uint32_t address, uint32_t rank) { return word_of_block(address, rank); }
inline int64_t read_long_from_block(uint32_t address, uint32_t rank) {
  const uint64_t low = read_from_block(address, rank), high = read_from_block(address + 4, rank);
  return static_cast<int64_t>(high << 32 | low);
}
inline void raise_in_block(uint32_t address, uint32_t rank, uint32_t value) {
  uint32_t& word = word_of_block(address, rank);
  word = larger(word, value);
}
inline void add_in_block(uint32_t address, uint32_t rank, uint32_t value) { word_of_block(address, rank) += value; }
inline void copies_are_a_group() {}
template <int PENDING> void wait_for_groups() {}

inline void barrier_init(uint32_t barrier, int count) {
  Barrier& own = barrier_of(*here, barrier);
  own.count = own.pending = count;
}
inline void barrier_init_fence() {}
inline void barrier_expect(uint32_t barrier, int bytes) { barrier_of(*here, barrier).change(1, bytes); }
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  Barrier& own = barrier_of(*here, barrier);
  while ((own.phase & 1) == parity) wait(own.phase);
}
inline void barrier_arrive_if(bool wanted, uint32_t barrier) {
  if (wanted) barrier_of(*here, barrier).change(1, 0);
}
inline void barrier_arrive_in(uint32_t barrier, uint32_t rank, int threads) {
  barrier_of(cluster[rank], barrier).change(threads, 0);
}

inline void bulk_copy_to_blocks(uint32_t to, const void* from, int bytes, uint32_t barrier, unsigned short blocks) {
  for (unsigned r = 0; r < blocks_of_cluster; ++r) {
    if ((blocks >> r & 1) == 0) continue;
    std::memcpy(cluster[r].dynamic + (to - FIRST), from, bytes);
    barrier_of(cluster[r], barrier).change(0, -bytes);
  }
}
inline void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  bulk_copy_to_blocks(to, from, bytes, barrier, static_cast<unsigned short>(1u << cluster_rank()));
}

inline void bulk_prefetch(const void*, int) {}

inline void send_to_block(uint32_t address, uint32_t rank, uint32_t word, uint32_t barrier) {
  word_of_block(address, rank) = word;
  barrier_of(cluster[rank], barrier).change(0, -4);
}

inline void named_barrier_arrive(int number, int threads) {
  Group& named = here->named[number];
  named.alive = threads;
  ++named.arrived;
  named.pass();
}
inline void named_barrier(int number, int threads) {
  const unsigned generation = here->named[number].generation;
  named_barrier_arrive(number, threads);
  if (here->named[number].generation == generation) wait(here->named[number].generation);
}

inline void flag_raise(uint32_t* flag, uint32_t count) { *flag = count; }
inline void async_proxy_fence() {}
inline void shared_proxy_fence() {}
inline void flag_wait(const uint32_t* flag, uint32_t count) {
  while (*static_cast<const volatile uint32_t*>(flag) < count) wait(*flag);
}

template <int COUNT> void keep_registers() {}
template <int COUNT> void take_registers() {}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int PENDING> void wgmma_wait() { arrive(*current->warpgroup); }
template <typename T, int N> void registers_ready(T (&)[N]) {}

inline uint32_t hidden(uint32_t x) { return x; }
inline uint32_t this_thread() { return current->index.x; }
inline uint32_t load_u32(const uint32_t* from) { return *from; }
inline void load_again(uint32_t from, int (&v)[4]) { std::memcpy(v, shared_memory(from), 16); }

// 32 bytes of a row of the tile that a descriptor points to, swizzled by 128 bytes.
inline void read_row(uint32_t descriptor, int row, uint8_t (&out)[32]) {
  for (int i = 0; i < 2; ++i) {
    const uint32_t linear = static_cast<uint32_t>((descriptor & 0x3fff) << 4) + row * 128 + 16 * i;
    std::memcpy(out + 16 * i, here->dynamic + ((linear ^ ((linear >> 7 & 7) << 4)) - FIRST), 16);
  }
}

inline bool all_zero(const uint8_t (&bytes)[32]) {
  uint64_t parts[4];
  std::memcpy(parts, bytes, 32);
  return (parts[0] | parts[1] | parts[2] | parts[3]) == 0;
}

// f(entry of d, bytes of a row of A, bytes of a row of B^T) for each entry that a thread has; none(entry) where one of
// them is nothing but zeros, as most of what pads a tile.
template <typename None, typename F> void each_entry(int columns, uint32_t a, uint32_t b, None none, F f) {
  const int row = threadIdx.x % 128 / 32 * 16 + current->lane / 4;
  uint8_t x[2][32], y[32];
  bool zero[2];
  for (int i = 0; i < 2; ++i) read_row(a, row + 8 * i, x[i]), zero[i] = all_zero(x[i]);
  for (int j = 0; j < columns / 8; ++j)
    for (int i = 0; i < 2; ++i) {
      bool zeros = zero[0] && zero[1];
      if (!zeros) read_row(b, 8 * j + current->lane % 4 * 2 + i, y), zeros = all_zero(y);
      for (int r = 0; r < 2; ++r)
        if (zeros || zero[r])
          none(4 * j + 2 * r + i);
        else
          f(4 * j + 2 * r + i, x[r], y);
    }
}

// wgmma of 32 bytes along k and of 2 * COUNT columns.
template <typename T> EXPORTED void wgmma_bytes(uint32_t* d, int count, uint32_t a, uint32_t b, int accumulate);
extern template void wgmma_bytes<uint8_t>(uint32_t*, int, uint32_t, uint32_t, int);
extern template void wgmma_bytes<int8_t>(uint32_t*, int, uint32_t, uint32_t, int);
template <typename T, int COUNT> void wgmma_bytes(uint32_t (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) {
  wgmma_bytes<T>(d, COUNT, a, b, accumulate);
}
