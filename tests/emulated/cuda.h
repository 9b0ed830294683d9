// CUDA C++ for a CPU, as far as the kernels need it: a cluster runs at a time, each of its threads as a context that gives
// way where others have to arrive. What need not be compiled with each kernel is in cuda.cpp.
#pragma once
#include <cfenv>
#include <cstdint>
#include <cstring>
#include <utility>

#undef _GLIBCXX_USE_STD_SPEC_FUNCS  // Bessel's and others, which take a quarter of the time to compile a small kernel
#include <cmath>

#define __CUDACC__ 1
#define __host__
#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static __attribute__((section("shared")))
#define EXPORTED __attribute__((visibility("default")))
#define __align__(n) __attribute__((aligned(n)))

// Vectors --------------------------------------------------------------------------------------------------------------

#define VECTOR2(name, type) \
  struct alignas(2 * sizeof(type)) name { type x, y; }; \
  inline name make_##name(type x, type y) { return {x, y}; }
#define VECTOR4(name, type) \
  struct alignas(16) name { type x, y, z, w; }; \
  inline name make_##name(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTOR2(uint2, unsigned)
VECTOR2(float2, float)
VECTOR2(double2, double)
VECTOR2(longlong2, long long)
VECTOR2(ulonglong2, unsigned long long)
VECTOR4(int4, int)
VECTOR4(uint4, unsigned)
VECTOR4(float4, float)

struct Size {
  unsigned x = 1, y = 1, z = 1;
};
EXPORTED extern Size blockIdx, blockDim, gridDim;

// Threads --------------------------------------------------------------------------------------------------------------

// What threads of a warp exchange.
union InTransit {
  uint64_t slots[32];
  uint32_t fragments[32][6];
  uint8_t bytes[6][8][16];  // of eight rows or columns, 16 each
};

// Those that wait for one another.
struct Group {
  int alive = 0, arrived = 0;
  unsigned generation = 0;
  InTransit in_transit[2];
  int any[2] = {};

  // Where threads write what they exchange, before they arrive. They read it after that; as it is used again only after
  // all have arrived once more, none has to wait until all have read it.
  InTransit& now() { return in_transit[generation % 2]; }
  int& any_now() { return any[generation % 2]; }
  void begin(int threads) {
    std::memset(this, 0, sizeof(*this));
    alive = threads;
  }
  void pass() {
    if (arrived < alive) return;
    arrived = 0;
    ++generation;
    any_now() = 0;
  }
  void leave() {
    --alive;
    if (arrived > 0) pass();
  }
};

// An mbarrier in shared memory.
struct Barrier {
  int count = 0, pending = 0;
  int64_t bytes = 0;  // that are expected
  unsigned phase = 0;

  void change(int arrivals, int64_t expected) {
    pending -= arrivals;
    bytes += expected;
    if (pending != 0 || bytes != 0) return;
    pending = count;
    ++phase;
  }
};

extern "C" __attribute__((weak)) char __start_shared[], __stop_shared[];

struct Block {
  Size index;
  Group all;
  Group *warps, *warpgroups;
  Group named[16];  // of which only those that arrive count
  char* statics;    // its shared variables while another block runs
  uint8_t* dynamic;
};

struct Thread {
  Size index;
  int lane;
  Group *warp, *warpgroup;
  unsigned arrived_at;  // the generation of the cluster's threads
};

EXPORTED extern Thread* current;
EXPORTED extern Block *here, *cluster;  // the block that runs, and the first of its cluster
EXPORTED extern unsigned blocks_of_cluster;
EXPORTED extern Group together;  // all threads of the cluster
#define threadIdx (current->index)

// The mbarrier at an address of that block.
EXPORTED Barrier& barrier_of(const Block& block, uint32_t address);

// Have other threads go on until the number changes.
EXPORTED void wait(const unsigned& number);
// Wait until all threads of the group have arrived.
EXPORTED void arrive(Group& group);

inline void __syncthreads() { arrive(here->all); }
EXPORTED int __syncthreads_or(int said);

// f(the values of all lanes, each in the low bytes of its slot)
template <typename T, typename F> auto exchanged(T value, F f) {
  static_assert(sizeof(T) <= 8, "");
  Group& warp = *current->warp;
  uint64_t(&slots)[32] = warp.now().slots;
  std::memcpy(&slots[current->lane], &value, sizeof(T));
  arrive(warp);
  return f(slots);
}
template <typename T> T from_slot(const uint64_t& slot) {
  T value;
  std::memcpy(&value, &slot, sizeof(T));
  return value;
}
template <typename T> T from_lane(T value, int lane) {
  return exchanged(value, [lane](const uint64_t (&slots)[32]) { return from_slot<T>(slots[lane & 31]); });
}
template <typename T> T __shfl_sync(unsigned, T value, int lane) { return from_lane(value, lane); }
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) { return from_lane(value, current->lane ^ mask); }
inline unsigned __ballot_sync(unsigned, bool said) {
  return exchanged(said, [](const uint64_t (&slots)[32]) {
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) bits |= static_cast<unsigned>(from_slot<bool>(slots[i])) << i;
    return bits;
  });
}
inline bool __all_sync(unsigned all, bool said) { return __ballot_sync(all, !said) == 0; }
inline bool __any_sync(unsigned all, bool said) { return __ballot_sync(all, said) != 0; }
inline void __syncwarp(unsigned = ~0u) { arrive(*current->warp); }

// Arithmetic -----------------------------------------------------------------------------------------------------------

template <typename F> auto toward(int mode, F f) {
  const int before = std::fegetround();
  if (before == mode) return f();  // as most often: setting a mode takes longer than what is rounded
  std::fesetround(mode);
  const volatile auto result = f();
  std::fesetround(before);
  return static_cast<decltype(f())>(result);
}
#define BINARY(name, type, mode, op) \
  inline type name(type x, type y) { \
    const volatile type a = x, b = y; \
    return toward(mode, [&] { return static_cast<type>(a op b); }); \
  }
BINARY(__dadd_rn, double, FE_TONEAREST, +)
BINARY(__dmul_rn, double, FE_TONEAREST, *)
BINARY(__dmul_rd, double, FE_DOWNWARD, *)
BINARY(__ddiv_rn, double, FE_TONEAREST, /)
BINARY(__fadd_rn, float, FE_TONEAREST, +)
BINARY(__fmul_rn, float, FE_TONEAREST, *)
BINARY(__fmul_ru, float, FE_UPWARD, *)
BINARY(__fmul_rd, float, FE_DOWNWARD, *)
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __frcp_rd(float x) {
  const volatile float y = x;
  return toward(FE_DOWNWARD, [&] { return 1.0f / y; });
}
inline float __frcp_ru(float x) {
  const volatile float y = x;
  return toward(FE_UPWARD, [&] { return 1.0f / y; });
}
inline float __fmaf_ru(float x, float y, float z) {
  // exact in float64 but for the sum, whose own rounding upward is kept by a second one
  const volatile double product = static_cast<double>(x) * y, addend = z;
  return toward(FE_UPWARD, [&] { const volatile double sum = product + addend; return static_cast<float>(sum); });
}
inline float __double2float_ru(double x) {
  const volatile double y = x;
  return toward(FE_UPWARD, [&] { return static_cast<float>(y); });
}
inline float __double2float_rd(double x) {
  const volatile double y = x;
  return toward(FE_DOWNWARD, [&] { return static_cast<float>(y); });
}
inline float __int2float_rd(int x) {
  const volatile int y = x;
  return toward(FE_DOWNWARD, [&] { return static_cast<float>(y); });
}
inline float __int2float_ru(int x) {
  const volatile int y = x;
  return toward(FE_UPWARD, [&] { return static_cast<float>(y); });
}
inline long long __double_as_longlong(double x) {
  long long bits;
  std::memcpy(&bits, &x, 8);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double x;
  std::memcpy(&x, &bits, 8);
  return x;
}
inline int __dp4a(int x, int y, int sum) {
  for (int j = 0; j < 32; j += 8) sum += static_cast<int8_t>(x >> j) * static_cast<int8_t>(y >> j);
  return sum;
}
inline size_t __cvta_generic_to_shared(const void* p) { return reinterpret_cast<size_t>(p); }
#define REDUCE(name, result) \
  template <typename T> T name(unsigned, T value) { \
    return exchanged(value, [](const uint64_t (&slots)[32]) { \
      T x = from_slot<T>(slots[0]); \
      for (int i = 1; i < 32; ++i) { \
        const T y = from_slot<T>(slots[i]); \
        x = result; \
      } \
      return x; \
    }); \
  }
REDUCE(__reduce_add_sync, x + y)
REDUCE(__reduce_max_sync, x < y ? y : x)
REDUCE(__reduce_min_sync, y < x ? y : x)
REDUCE(__reduce_or_sync, x | y)
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

template <typename T> T __ldg(const T* p) { return *p; }
template <typename T> T __ldcs(const T* p) { return *p; }
template <typename T> T __ldcg(const T* p) { return *p; }
template <typename T> void __stcs(T* p, T value) { *p = value; }
template <typename T> void __stcg(T* p, T value) { *p = value; }
inline void __threadfence() {}
template <typename T> T atomicMax(T* p, T value) {
  const T before = *p;
  if (value > before) *p = value;
  return before;
}
inline void __nanosleep(unsigned) {}
template <typename T> T atomicAdd(T* p, T value) {
  const T before = *p;
  *p += value;
  return before;
}

// mma.sync m16n8k16 (and twice that depth, PARTS = 2) of bytes: `own` has limbs of two rows and of a column.
template <typename Byte, int PARTS>
EXPORTED void multiply_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], const uint32_t (&own)[3 * PARTS]);
extern template void multiply_bytes<uint8_t, 1>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[3]);
extern template void multiply_bytes<uint8_t, 2>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[6]);
extern template void multiply_bytes<int8_t, 1>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[3]);
extern template void multiply_bytes<int8_t, 2>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[6]);

#define MULTIPLY(name, Byte) \
  inline void name(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first, uint32_t second, uint32_t b) { \
    multiply_bytes<Byte, 1>(d, c, {first, second, b}); \
  } \
  inline void name(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first, uint32_t second, uint32_t b, \
                   uint32_t first_next, uint32_t second_next, uint32_t b_next) { \
    multiply_bytes<Byte, 2>(d, c, {first, second, b, first_next, second_next, b_next}); \
  }
MULTIPLY(multiply_bytes, uint8_t)
MULTIPLY(multiply_signed_bytes, int8_t)

inline void load_matrices(uint32_t (&part)[4], const uint32_t* row) {
  exchanged(row, [&](const uint64_t (&slots)[32]) {
    for (int i = 0; i < 4; ++i)
      part[i] = from_slot<const uint32_t*>(slots[8 * i + current->lane / 4])[current->lane % 4];
    return 0;
  });
}

// Launching ------------------------------------------------------------------------------------------------------------

template <typename... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<A>>*>(arguments[I])...);
}
template <typename... A> void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<A...>{});
}

// Runs body(arguments) in every thread. `blocks`: of a cluster; `dynamic`: whether they have dynamic shared memory; from
// `shared` on there are `statics` bytes of shared variables.
EXPORTED void run_threads(void (*body)(void**), void** arguments, Size grid, Size threads, unsigned blocks, bool dynamic,
                          char* shared, size_t statics);

inline void launch(void (*body)(void**), void** arguments, const unsigned* grid, const unsigned* threads,
                   unsigned blocks, bool dynamic) {
  const size_t statics = __start_shared == nullptr ? 0 : __stop_shared - __start_shared;
  run_threads(body, arguments, {grid[0], grid[1], grid[2]}, {threads[0], threads[1], threads[2]}, blocks, dynamic,
              __start_shared, statics);
}
