// One function for each PTX instruction of Hopper that the kernels use (PTX ISA 8.0, sm_90a). Shared-memory addresses
// are 32-bit addresses in the shared window (shared_address).
#pragma once
#include "arithmetic/common.cuh"

// The lower limb of the wgmma descriptor of a K-major tile whose rows have 128 bytes, swizzled by 128 bytes. `address`
// is a multiple of 1024, plus 32 bytes for each step along k (adds 2 to the descriptor), plus 8192 bytes for 64 rows
// (adds 512). Arithmetic on 32 bits is enough: the upper limb (stride 1024 bytes, 128-byte swizzle) is the same for all
// tiles.
__device__ __forceinline__ uint32_t tile_descriptor(uint32_t address) { return (address & 0x3ffff) >> 4 | 1u << 16; }
__device__ __forceinline__ uint64_t whole_descriptor(uint32_t lower) { return (64ull | 1ull << 30) << 32 | lower; }

#if defined(__CUDACC_RTC__) || defined(__NVCC__)  // (tests that emulate a cluster bring their own)

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// The number of the multiprocessor that this block runs on (%smid).
__device__ __forceinline__ uint32_t multiprocessor() {
  uint32_t x;
  asm("mov.u32 %0, %%smid;" : "=r"(x));
  return x;
}

// The cluster address of the same shared-memory address in block `rank` of the cluster.
__device__ __forceinline__ uint32_t in_block(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// mbarrier:
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
//
// Initialises an mbarrier whose phases complete after `count` arrivals and all expected bytes. By one thread.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
// Makes initialised mbarriers visible to the cluster and to bulk copies; by the thread that initialised them.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One arrival, and `bytes` bytes that have to land before the current phase completes.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Returns when the phase of this parity is complete; polls.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "retry: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra over;\nbra retry;\nover:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// One arrival, if it is wanted.
__device__ __forceinline__ void barrier_arrive_if(bool wanted, uint32_t barrier) {
  asm volatile("{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %0, 0;\n@wanted mbarrier.arrive.shared.b64 _, [%1];\n}" ::"r"(
                   static_cast<uint32_t>(wanted)),
               "r"(barrier)
               : "memory");
}
// `threads` arrivals at the mbarrier of the same address in block `rank` of the cluster. It only says that reads are
// over: what this thread has written is not released to the other block (that would take a fence for which the tensor
// cores would have to wait).
__device__ __forceinline__ void barrier_arrive_in(uint32_t barrier, uint32_t rank, int threads) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0], %1;" ::"r"(in_block(barrier, rank)), "r"(threads)
               : "memory");
}

// cp.async.bulk: copies `bytes` bytes (a multiple of 16) from global memory to shared memory of this block; the bytes
// count at the mbarrier when they have landed.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// Begins to bring `bytes` bytes (a multiple of 16) of global memory into the second-level cache.
__device__ __forceinline__ void bulk_prefetch(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// After this thread has seen a flag, its bulk copies (asynchronous proxy) see what other threads wrote before they
// raised that flag.
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// What this thread wrote to shared memory, its complete cp.async copies too, is seen by wgmma (asynchronous proxy) that
// is issued after a barrier.
__device__ __forceinline__ void shared_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// bulk_copy into every block of the cluster whose bit is set in `blocks`, at the same address; in each of them the
// bytes count at the mbarrier of the same address.
__device__ __forceinline__ void bulk_copy_to_blocks(uint32_t to, const void* from, int bytes, uint32_t barrier,
                                                    unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
      : "memory");
}

// Barrier number `number` for `threads` threads of the block: returns when that many have arrived or wait.
__device__ __forceinline__ void named_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// Arrives at the same barrier without waiting.
__device__ __forceinline__ void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// A counter in global memory: a thread whose flag_wait(flag, count) returns sees what the raising thread saw or wrote
// before flag_raise(flag, count).
__device__ __forceinline__ void flag_raise(uint32_t* flag, uint32_t count) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(count) : "memory");
}
__device__ __forceinline__ void flag_wait(const uint32_t* flag, uint32_t count) {
  uint32_t raised;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
  while (raised < count);
}
// Rank of this block in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Barrier of all threads of the cluster; shared-memory writes before it are seen by all blocks after it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The same in two steps. The arrival is relaxed: shared-memory writes since the last barrier are not made visible to
// other blocks.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// Reads 32 bits, or 64, of shared memory at the same address in block `rank` of the cluster.
__device__ __forceinline__ uint32_t read_from_block(uint32_t address, uint32_t rank) {
  uint32_t limb;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(limb) : "r"(in_block(address, rank)) : "memory");
  return limb;
}
__device__ __forceinline__ int64_t read_long_from_block(uint32_t address, uint32_t rank) {
  int64_t number;
  asm volatile("ld.shared::cluster.s64 %0, [%1];" : "=l"(number) : "r"(in_block(address, rank)) : "memory");
  return number;
}
// Writes 32 bits to shared memory at the same address in block `rank`; the 4 bytes count at that block's mbarrier of
// the same address as `barrier`.
__device__ __forceinline__ void send_to_block(uint32_t address, uint32_t rank, uint32_t limb, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                   in_block(address, rank)),
               "r"(limb), "r"(in_block(barrier, rank))
               : "memory");
}
// Atomic maximum, and sum, with 32 bits of shared memory at the same address in block `rank`. The result is seen after
// a barrier of the cluster.
__device__ __forceinline__ void raise_in_block(uint32_t address, uint32_t rank, uint32_t value) {
  asm volatile("red.shared::cluster.max.u32 [%0], %1;" ::"r"(in_block(address, rank)), "r"(value) : "memory");
}
__device__ __forceinline__ void add_in_block(uint32_t address, uint32_t rank, uint32_t value) {
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(in_block(address, rank)), "r"(value) : "memory");
}

// Makes a group of the thread's cp.async copies since its last group. wait_for_groups<PENDING> returns when all but the
// last PENDING groups of the thread are complete.
__device__ __forceinline__ void copies_are_a_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// setmaxnreg: a warpgroup gives up registers, and another one takes them. By all threads of the warpgroup.
template <int COUNT> __device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// wgmma: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
// wgmma_fence before a series of wgmma whose registers were touched; wgmma_commit makes a group of them;
// wgmma_wait<PENDING> returns when all but the last PENDING groups are complete.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Text of the accumulators of a wgmma for inline assembly: placeholders %0, %1, ..., and the array d of the thread as
// operands with a constraint ("+r", "+f").
#define FIRST_4 "%0,%1,%2,%3"
#define FIRST_8 FIRST_4 ",%4,%5,%6,%7"
#define FIRST_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define FIRST_32 FIRST_16 "," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define FIRST_48 FIRST_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define FIRST_52 FIRST_48 ",%48,%49,%50,%51"
#define FIRST_64 FIRST_52 ",%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define FIRST_96 FIRST_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define FIRST_104 FIRST_96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define FIRST_128 FIRST_104 ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115," \
  "%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define FOUR(C, i) C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3])
#define EIGHT(C, i) FOUR(C, i), FOUR(C, i + 4)
#define REGISTERS_4(C) FOUR(C, 0)
#define REGISTERS_8(C) EIGHT(C, 0)
#define REGISTERS_16(C) EIGHT(C, 0), EIGHT(C, 8)
#define REGISTERS_32(C) EIGHT(C, 0), EIGHT(C, 8), EIGHT(C, 16), EIGHT(C, 24)
#define REGISTERS_48(C) REGISTERS_32(C), EIGHT(C, 32), EIGHT(C, 40)
#define REGISTERS_52(C) REGISTERS_48(C), FOUR(C, 48)
#define REGISTERS_64(C) REGISTERS_52(C), FOUR(C, 52), EIGHT(C, 56)
#define REGISTERS_96(C) REGISTERS_64(C), EIGHT(C, 64), EIGHT(C, 72), EIGHT(C, 80), EIGHT(C, 88)
#define REGISTERS_104(C) REGISTERS_96(C), EIGHT(C, 96)
#define REGISTERS_128(C) REGISTERS_104(C), EIGHT(C, 104), EIGHT(C, 112), EIGHT(C, 120)
#define WGMMA(SHAPE, OPERANDS, A, B, P, MORE) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n" \
  "wgmma.mma_async.sync.aligned." SHAPE " {" OPERANDS "}, " A ", " B ", p" MORE ";\n}\n"

// d (64 x N int32, N / 2 registers a thread) = A (64 x 32) B (32 x N), plus d if `accumulate`, of bytes of type T.
template <typename T, int COUNT> struct Wgmma;
#define DEFINE_BYTES(T, TYPES, COUNT, N, A, B, P)                                                              \
  template <> struct Wgmma<T, COUNT> {                                                                         \
    static __device__ __forceinline__ void run(uint32_t (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) { \
      asm volatile(WGMMA("m64n" #N "k32.s32." TYPES, FIRST_##COUNT, A, B, P, "")                               \
                   : REGISTERS_##COUNT("+r")                                                                  \
                   : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"(accumulate));                    \
    }                                                                                                          \
  };
DEFINE_BYTES(int8_t, "s8.s8", 4, 8, "%4", "%5", "%6")
DEFINE_BYTES(int8_t, "s8.s8", 8, 16, "%8", "%9", "%10")
DEFINE_BYTES(int8_t, "s8.s8", 16, 32, "%16", "%17", "%18")
DEFINE_BYTES(int8_t, "s8.s8", 32, 64, "%32", "%33", "%34")
DEFINE_BYTES(int8_t, "s8.s8", 64, 128, "%64", "%65", "%66")
DEFINE_BYTES(int8_t, "s8.s8", 96, 192, "%96", "%97", "%98")
DEFINE_BYTES(uint8_t, "u8.u8", 8, 16, "%8", "%9", "%10")
DEFINE_BYTES(uint8_t, "u8.u8", 16, 32, "%16", "%17", "%18")
DEFINE_BYTES(uint8_t, "u8.u8", 64, 128, "%64", "%65", "%66")
DEFINE_BYTES(uint8_t, "u8.u8", 96, 192, "%96", "%97", "%98")
#undef DEFINE_BYTES
template <typename T, int COUNT>
__device__ __forceinline__ void wgmma_bytes(uint32_t (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) {
  Wgmma<T, COUNT>::run(d, a, b, accumulate);
}

// Keeps the compiler from moving reads of wgmma results before this point, which stands after wgmma_wait: it does not
// know that wgmma writes d asynchronously.
template <int N> __device__ __forceinline__ void registers_ready(uint32_t (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <int N> __device__ __forceinline__ void registers_ready(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The same number, which the compiler knows nothing about.
__device__ __forceinline__ uint32_t hidden(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
// threadIdx.x, read anew: values that depend on it need not stay in registers during wgmma, which needs them all.
__device__ __forceinline__ uint32_t this_thread() {
  uint32_t x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}
// Loads of 4 x 32 bits of shared memory, and of 32 bits of global memory, that the compiler may not merge with others:
// it would keep what two rows load in registers, which are all taken.
__device__ __forceinline__ void load_again(uint32_t from, int (&v)[4]) {
  asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from));
}
__device__ __forceinline__ uint32_t load_u32(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

#endif
