// How kernels overlap with the kernel before them on the stream (programmatic dependent launch, compute capability 9.0
// and up; on older devices these functions do nothing).
//
// A kernel may begin as soon as all blocks of the kernel before it have called let_next_begin (or exited), so before
// that kernel's memory writes are visible. Every kernel therefore calls exactly one of the functions below before it
// reads memory that other kernels write, or writes memory that they read.
//
//   stream   | kernel 1 ........................ |
//                      | kernel 2: begins, waits  after_previous() returns | ...
#pragma once

// Returns when the kernel before is complete and its writes are visible.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Allows the next kernel to begin, once all blocks of this one have called it.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Begins to bring a line of global memory into the second-level cache, which has what any kernel writes; so it is no
// read, and may come before this kernel waits.
__device__ __forceinline__ void prefetch(const void* address) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// After it a kernel may read what the kernel before it wrote, and write where that one read. The next one may begin.
__device__ __forceinline__ void after_previous() {
  wait_for_previous();
  let_next_begin();
}

// With `beside` this kernel runs at the same time as the one before it: neither writes what the other reads or writes,
// and all memory of this kernel was allocated before that one was launched. It then ends with after_both(), so that for
// the next kernel, which only waits for this one, both are complete. Without `beside` as after_previous().
__device__ __forceinline__ void beside_previous(bool beside) {
  if (!beside) wait_for_previous();
  let_next_begin();
}
__device__ __forceinline__ void after_both() { wait_for_previous(); }
