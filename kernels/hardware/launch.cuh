// What every kernel does before it reads what others wrote, or writes.
//
// A kernel may begin before the one ahead of it on the stream is over (programmatic dependent launch, compute
// capability 9.0 and up): when all blocks of that one have begun and, if it does not itself work beside another one,
// all that was ahead of it is over.
#pragma once

__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// From here on a kernel may read what the one ahead of it wrote, and write where that one read. The next one may begin,
// too.
__device__ __forceinline__ void after_previous() {
  wait_for_previous();
  let_next_begin();
}

// If `beside`, this kernel works beside the one ahead of it: neither writes what the other reads or writes, and its
// memory was allocated before that one was launched. It ends with after_both, so that for the next one both are over.
__device__ __forceinline__ void beside_previous(bool beside) {
  if (!beside) wait_for_previous();
  let_next_begin();
}
__device__ __forceinline__ void after_both() { wait_for_previous(); }
