// What every kernel does first of all.
#pragma once

// A kernel may begin before the one ahead of it on the stream is over (programmatic dependent launch, compute
// capability 9.0 and up); from here on it may read what that one wrote, and write where that one read. The next one may
// begin, too.
__device__ __forceinline__ void after_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
}
