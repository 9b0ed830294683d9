// One function per PTX instruction of Hopper that the kernels use (PTX ISA 8.0, sm_90a).
#pragma once
#include "arithmetic/common.cuh"

// The lower word of the descriptor of a K-major tile with rows of 128 bytes, swizzled by 128 bytes; `address` of 1024 *
// i, plus 32 bytes a step along k (a step adds 2 to the word), plus 8192 bytes for 64 rows (adds 512). Words do for
// arithmetic, the upper one being the same for all tiles.
__device__ __forceinline__ uint32_t tile_descriptor(uint32_t address) { return (address & 0x3ffff) >> 4 | 1u << 16; }
__device__ __forceinline__ uint64_t whole_descriptor(uint32_t lower) { return (64ull | 1ull << 30) << 32 | lower; }

#if defined(__CUDACC_RTC__) || defined(__NVCC__)  // (tests that emulate a cluster bring their own)

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// The number of the multiprocessor that this block runs on.
__device__ __forceinline__ uint32_t multiprocessor() {
  uint32_t x;
  asm("mov.u32 %0, %%smid;" : "=r"(x));
  return x;
}

// Where the same address of shared memory is in block `rank` of the cluster.
__device__ __forceinline__ uint32_t in_block(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// mbarrier:
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra over;\nbra again;\nover:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Arrive at the barrier of the same address in block `rank` of the cluster, for `threads`. What the thread wrote is not
// released to the other block (a fence that the tensor cores would wait for): it arrives for reads, which are over.
__device__ __forceinline__ void barrier_arrive_in(uint32_t barrier, uint32_t rank, int threads) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0], %1;" ::"r"(in_block(barrier, rank)), "r"(threads)
               : "memory");
}

// cp.async.bulk: global to shared memory, completing on an mbarrier.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// What other threads have written, and this one has seen by a flag, is seen by its bulk copies too.
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// The same as bulk_copy, into every block of the cluster that `blocks` has a bit for, at the same addresses.
__device__ __forceinline__ void bulk_copy_to_blocks(uint32_t to, const void* from, int bytes, uint32_t barrier,
                                                    unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
      : "memory");
}

// For `threads` threads of the block, all of them together with this number.
__device__ __forceinline__ void named_barrier(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// The same without waiting for the others.
__device__ __forceinline__ void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// A count in global memory: what was written before it was raised is there after it was seen.
__device__ __forceinline__ void flag_raise(uint32_t* flag, uint32_t count) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(count) : "memory");
}
__device__ __forceinline__ void flag_wait(const uint32_t* flag, uint32_t count) {
  uint32_t raised;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
  while (raised < count);
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The same in two steps; what was written between the last barrier and this one is not seen by other blocks.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// A word of shared memory at the same address in block `rank` of the cluster.
__device__ __forceinline__ uint32_t read_from_block(uint32_t address, uint32_t rank) {
  uint32_t word;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(word) : "r"(in_block(address, rank)) : "memory");
  return word;
}
// It becomes `word`, which counts as bytes that block expects at the barrier.
__device__ __forceinline__ void send_to_block(uint32_t address, uint32_t rank, uint32_t word, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                   in_block(address, rank)),
               "r"(word), "r"(in_block(barrier, rank))
               : "memory");
}
// It becomes the larger of itself and value, or their sum, as is seen after a barrier of the cluster.
__device__ __forceinline__ void raise_in_block(uint32_t address, uint32_t rank, uint32_t value) {
  asm volatile("red.shared::cluster.max.u32 [%0], %1;" ::"r"(in_block(address, rank)), "r"(value) : "memory");
}
__device__ __forceinline__ void add_in_block(uint32_t address, uint32_t rank, uint32_t value) {
  asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(in_block(address, rank)), "r"(value) : "memory");
}

// Copies into shared memory since the last time are a group; all but the last PENDING groups are complete.
__device__ __forceinline__ void copies_are_a_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

template <int COUNT> __device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// wgmma: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// The accumulators of a wgmma, for the array d of its thread: placeholders, and operands by their constraint ("+r",
// "+f").
#define FIRST_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
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

// d (64 x N int32, N / 2 registers a thread) = [accumulate] d + A (64 x 32) B (32 x N), of bytes of type T.
template <typename T, int COUNT> struct Wgmma;
#define DEFINE_BYTES(T, TYPES, COUNT, N, A, B, P)                                                              \
  template <> struct Wgmma<T, COUNT> {                                                                         \
    static __device__ __forceinline__ void run(uint32_t (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) { \
      asm volatile(WGMMA("m64n" #N "k32.s32." TYPES, FIRST_##COUNT, A, B, P, "")                               \
                   : REGISTERS_##COUNT("+r")                                                                  \
                   : "l"(whole_descriptor(a)), "l"(whole_descriptor(b)), "r"(accumulate));                    \
    }                                                                                                          \
  };
DEFINE_BYTES(int8_t, "s8.s8", 64, 128, "%64", "%65", "%66")
DEFINE_BYTES(int8_t, "s8.s8", 96, 192, "%96", "%97", "%98")
DEFINE_BYTES(uint8_t, "u8.u8", 64, 128, "%64", "%65", "%66")
DEFINE_BYTES(uint8_t, "u8.u8", 96, 192, "%96", "%97", "%98")
#undef DEFINE_BYTES
template <typename T, int COUNT>
__device__ __forceinline__ void wgmma_bytes(uint32_t (&d)[COUNT], uint32_t a, uint32_t b, int accumulate) {
  Wgmma<T, COUNT>::run(d, a, b, accumulate);
}

// Results of a wgmma that is over may not be read before this point.
template <int N> __device__ __forceinline__ void registers_ready(uint32_t (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <int N> __device__ __forceinline__ void registers_ready(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The thread's number, found out anew: nothing that hangs on it then waits in a register while wgmma needs them all.
__device__ __forceinline__ uint32_t this_thread() {
  uint32_t x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return x;
}
// Four words of shared memory, one of global memory, loaded anew: the compiler would keep what two rows read in
// registers, which are all taken.
__device__ __forceinline__ void load_again(uint32_t from, int (&v)[4]) {
  asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from));
}
__device__ __forceinline__ uint32_t load_word(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

#endif
