// The code for processors: one translation unit, compiled once for each set of instructions
// (building/compile_cpu.py), into libraries with the same C interface.
//
// Nothing here runs when a library is loaded: no object has a constructor, since the processor may lack the
// instructions that all but ozaki_cpu_runs_here is compiled for.

#define OZAKI_CPU extern "C" __attribute__((visibility("default")))

// The version of this interface: INTERFACE in ozaki/backends/numpy/self_test.py is the same number. It goes up with
// each change of a function, so that a library left over from other sources is never called.
OZAKI_CPU int ozaki_cpu_interface(void) { return 1; }

#if defined(__AVX512VNNI__)
#define OZAKI_ANY_CPU __attribute__((target("no-avx")))
#else
#define OZAKI_ANY_CPU
#endif

// Whether the processor has the instructions that this library is compiled for, and the system saves their registers.
// This function is compiled for processors without them.
OZAKI_CPU OZAKI_ANY_CPU int ozaki_cpu_runs_here(void) {
#if defined(__AVX512VNNI__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
#else
  return 1;
#endif
}
