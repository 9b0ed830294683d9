// What each multiprocessor's counter of clocks shows, and when: marks[0][i] and marks[1][i] of multiprocessor i.
// Launch: warps of one thread's work, several for each of `count` multiprocessors.
extern "C" __global__ void mark(unsigned long long* marks, int count) {
  unsigned long long now;
  unsigned i;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  asm volatile("mov.u32 %0, %%smid;" : "=r"(i));
  if (threadIdx.x == 0 && i < count) {
    marks[i] = clock64();
    marks[count + i] = now;
  }
}
