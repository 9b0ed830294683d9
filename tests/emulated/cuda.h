// CUDA C++ for a CPU, as far as the kernels need it: a cluster runs at a time, each of its threads as a context that gives
// way where others have to arrive.
#pragma once
#undef _FORTIFY_SOURCE  // it takes a jump between stacks for a mistake
#include <setjmp.h>
#include <ucontext.h>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#define __CUDACC__ 1
#define __host__
#define __device__
#define __forceinline__ inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static __attribute__((section("shared")))
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
inline Size blockIdx, blockDim, gridDim;

// Threads --------------------------------------------------------------------------------------------------------------

// Those that wait for one another.
struct Group {
  int alive = 0, arrived = 0;
  unsigned generation = 0;
  uint64_t slots[32];
  uint32_t fragments[32][6];
  uint64_t spread[32][6];  // the same, as `spread_bytes` has them
  int any = 0;

  void pass() {
    if (arrived < alive) return;
    arrived = 0;
    ++generation;
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
constexpr size_t DYNAMIC = 232448;

struct Block {
  Size index;
  Group all;
  std::vector<Group> warps, warpgroups;
  Group named[16];  // of which only those that arrive count
  std::map<uint32_t, Barrier> barriers;
  std::vector<char> statics;  // its shared variables while another block runs
  std::vector<uint8_t> memory;
  uint8_t* dynamic;
};

struct Thread {
  ucontext_t context;  // to begin with
  jmp_buf place;       // to go on at
  std::unique_ptr<char[]> stack;
  Size index;
  int lane;
  Group *warp, *warpgroup;
  bool begun, over;
  unsigned arrived_at;  // the generation of the cluster's threads
};

inline Thread* current;
inline Block* here;
inline std::vector<Block>* cluster;
inline Group together;  // all threads of the cluster
inline jmp_buf scheduler;
#define threadIdx (current->index)

inline void give_way() {
  if (_setjmp(current->place) == 0) _longjmp(scheduler, 1);
}
inline void arrive(Group& group) {
  const unsigned generation = group.generation;
  ++group.arrived;
  group.pass();
  while (group.generation == generation) give_way();
}

inline void __syncthreads() { arrive(here->all); }
inline int __syncthreads_or(int said) {
  Group& group = here->all;
  group.any |= said != 0;
  arrive(group);
  const int any = group.any;
  arrive(group);
  group.any = 0;
  arrive(group);
  return any;
}

// f(the values of all lanes, each in the low bytes of its slot)
template <typename T, typename F> auto exchanged(T value, F f) {
  static_assert(sizeof(T) <= 8, "");
  Group& warp = *current->warp;
  std::memcpy(&warp.slots[current->lane], &value, sizeof(T));
  arrive(warp);
  const auto result = f(warp.slots);
  arrive(warp);
  return result;
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

// Four bytes as the coefficients of a polynomial in 2^18, which holds a sum of four products of bytes.
inline uint64_t spread_bytes(uint32_t x) {
  const uint64_t high = x >> 24, third = x >> 16 & 255, second = x >> 8 & 255;
  return high << 54 | third << 36 | second << 18 | (x & 255);
}
// The sum of the products of four bytes, those of one operand in reverse: a coefficient of the product of polynomials.
inline uint32_t products(uint64_t x, uint64_t reversed) {
  return static_cast<uint32_t>(static_cast<unsigned __int128>(x) * reversed >> 54) & ((1u << 18) - 1);
}
// mma.sync m16n8k16 (and twice that depth) of unsigned bytes: rows `first` and 8 more `second`, columns b.
template <int PARTS>
void multiply_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], const uint32_t (&own)[3 * PARTS]) {
  const int g = current->lane / 4, column = current->lane % 4 * 2;
  Group& warp = *current->warp;
  for (int i = 0; i < 3 * PARTS; ++i)
    warp.spread[current->lane][i] = spread_bytes(i % 3 < 2 ? own[i] : __builtin_bswap32(own[i]));
  arrive(warp);
  uint32_t sum[4] = {c[0], c[1], c[2], c[3]};
  for (int part = 0; part < 4 * PARTS; ++part) {
    const int from = part / 4 * 3, lane = part % 4;
    const uint64_t upper = warp.spread[4 * g + lane][from], lower = warp.spread[4 * g + lane][from + 1];
    for (int i = 0; i < 2; ++i) {
      const uint64_t y = warp.spread[4 * (column + i) + lane][from + 2];
      sum[i] += products(upper, y);
      sum[2 + i] += products(lower, y);
    }
  }
  arrive(warp);
  for (int i = 0; i < 4; ++i) d[i] = sum[i];
}
inline void multiply_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first, uint32_t second, uint32_t b) {
  multiply_bytes<1>(d, c, {first, second, b});
}
inline void multiply_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], uint32_t first, uint32_t second, uint32_t b,
                           uint32_t first_next, uint32_t second_next, uint32_t b_next) {
  multiply_bytes<2>(d, c, {first, second, b, first_next, second_next, b_next});
}

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

// `blocks` of a cluster; `dynamic`: whether they have dynamic shared memory.
template <typename... A>
void launch(void (*kernel)(A...), void** arguments, Size grid, Size threads, unsigned blocks, bool dynamic) {
  constexpr size_t STACK = 1 << 17;
  static void (*entry)(A...);
  static void** given;
  entry = kernel;
  given = arguments;
  const int count = threads.x * threads.y * threads.z;
  std::vector<Block> at_once(blocks);
  std::vector<Thread> all(blocks * count);
  for (auto& thread : all) thread.stack.reset(new char[STACK]);
  cluster = &at_once;
  void (*const body)() = [] {
    call(entry, given, std::index_sequence_for<A...>{});
    current->over = true;
    here->all.leave();
    current->warp->leave();
    current->warpgroup->leave();
    together.leave();
    _longjmp(scheduler, 1);
  };
  gridDim = grid;
  blockDim = threads;
  const size_t statics = __start_shared == nullptr ? 0 : __stop_shared - __start_shared;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; x += blocks) {
        together = Group();
        together.alive = blocks * count;
        for (unsigned r = 0; r < blocks; ++r) {
          Block& block = at_once[r];
          block = Block();
          block.index = {x + r, y, z};
          block.all.alive = count;
          block.warps.resize((count + 31) / 32);
          block.warpgroups.resize((count + 127) / 128);
          block.statics.assign(statics, static_cast<char>(0xa5));
          block.memory.assign(dynamic ? DYNAMIC + 1024 : 0, 0xa5);
          block.dynamic = block.memory.data() + (1024 - reinterpret_cast<uintptr_t>(block.memory.data()) % 1024);
          for (int i = 0; i < count; ++i) {
            Thread& thread = all[r * count + i];
            thread.index = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
            thread.lane = i % 32;
            thread.warp = &block.warps[i / 32];
            thread.warpgroup = &block.warpgroups[i / 128];
            ++thread.warp->alive;
            ++thread.warpgroup->alive;
            thread.begun = thread.over = false;
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = thread.stack.get();
            thread.context.uc_stack.ss_size = STACK;
            thread.context.uc_link = nullptr;
            makecontext(&thread.context, body, 0);
          }
        }
        while (together.alive > 0)
          for (volatile unsigned r = 0; r < blocks; r = r + 1) {
            here = &at_once[r];
            blockIdx = here->index;
            if (blocks > 1) std::memcpy(__start_shared, here->statics.data(), statics);
            for (volatile int i = 0; i < count; i = i + 1) {
              current = &all[r * count + i];
              if (current->over || _setjmp(scheduler) != 0) continue;
              if (std::exchange(current->begun, true)) _longjmp(current->place, 1);
              setcontext(&current->context);
            }
            if (blocks > 1) std::memcpy(here->statics.data(), __start_shared, statics);
          }
      }
}
