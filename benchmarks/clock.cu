// The clock rate of each multiprocessor, from two launches: its counter of clocks, marks[0][i] of multiprocessor i, and
// the time in nanoseconds at which that was read, marks[1][i]. marks is uint64 [2][count].
// Launch: several blocks for each of `count` multiprocessors, so that each gets one; thread 0 of a block writes.
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
