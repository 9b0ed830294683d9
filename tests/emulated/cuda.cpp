// The threads of kernels, and how they take turns: compiled once, while cuda.h is compiled with each kernel.
#include "hopper.h"

#include <ucontext.h>

#include <map>
#include <memory>
#include <vector>

Size blockIdx, blockDim, gridDim;
Thread* current;
Block *here, *cluster;
unsigned blocks_of_cluster;
Group together;

namespace {

constexpr size_t STACK = 1 << 17, DYNAMIC = 232448;

using Place = void* [5];  // to jump to, by functions of the compiler, which do less than those of the C library

// A thread and its stack. After a kernel it waits for the next one, since to begin on a stack takes calls of the system.
struct Context : Thread {
  Place place;  // to go on at
  std::unique_ptr<char[]> stack;
  bool over;
  const unsigned* awaited;  // there is nothing to do while this number is `seen`, unless it is null
  unsigned seen;
};

// Memory of a block, kept from launch to launch.
struct Held {
  std::vector<Group> warps, warpgroups;
  std::vector<char> statics;
  std::vector<uint8_t> memory;
  std::map<uint32_t, Barrier> barriers;
};

std::vector<Block> blocks_held;
std::vector<Held> held;
std::vector<Context> contexts;
Context *following, *end_of_block;  // the threads whose turn is next
Place scheduler;                    // where a turn of all threads of a block ends
void (*body_now)(void**);
void** arguments_now;

[[noreturn]] void live();

// Goes on with the next thread of the block that has something to do; after the last one, with the scheduler.
[[noreturn]] __attribute__((noinline)) void go_on() {
  for (; following != end_of_block; ++following) {
    Context& context = *following;
    if (context.over || (context.awaited != nullptr && *context.awaited == context.seen)) continue;
    ++following;
    current = &context;
    if (context.stack != nullptr) __builtin_longjmp(context.place, 1);
    context.stack.reset(new char[STACK]);
    static ucontext_t fresh;
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = context.stack.get();
    fresh.uc_stack.ss_size = STACK;
    fresh.uc_link = nullptr;
    makecontext(&fresh, live, 0);
    setcontext(&fresh);
  }
  __builtin_longjmp(scheduler, 1);
}

// Ends the turn of the current thread.
__attribute__((noinline)) void stop() {
  if (__builtin_setjmp(static_cast<Context*>(current)->place) == 0) go_on();
}

// Gives each thread of a block a turn.
__attribute__((noinline)) void once(Context* first, unsigned count) {
  following = first;
  end_of_block = first + count;
  if (__builtin_setjmp(scheduler) == 0) go_on();
}

void live() {
  for (;;) {
    body_now(arguments_now);
    static_cast<Context*>(current)->over = true;
    here->all.leave();
    current->warp->leave();
    current->warpgroup->leave();
    together.leave();
    stop();
  }
}

// So many groups, to which no thread belongs yet.
Group* begin(std::vector<Group>& groups, unsigned count) {
  if (groups.size() < count) groups.resize(count);
  for (Group& group : groups) group.begin(0);
  return groups.data();
}

}  // namespace

void wait(const unsigned& number) {
  Context& context = *static_cast<Context*>(current);
  context.awaited = &number;
  context.seen = number;
  stop();
}

void arrive(Group& group) {
  const unsigned generation = group.generation;
  ++group.arrived;
  group.pass();
  if (group.generation == generation) wait(group.generation);
}

int __syncthreads_or(int said) {
  Group& group = here->all;
  int& any = group.any_now();
  any |= said != 0;
  arrive(group);
  return any;
}

namespace {
template <typename T, int COUNT> uint32_t products_of(const uint8_t* x, const uint8_t* y) {
  int sum = 0;
  for (int k = 0; k < COUNT; ++k) sum += static_cast<T>(x[k]) * static_cast<T>(y[k]);
  return static_cast<uint32_t>(sum);
}
}  // namespace

template <typename T> void wgmma_bytes(uint32_t* d, int count, uint32_t a, uint32_t b, int accumulate) {
  const auto before = [&](int entry) { return accumulate ? d[entry] : 0; };
  each_entry(
      2 * count, a, b, [&](int entry) { d[entry] = before(entry); },
      [&](int entry, const uint8_t (&x)[32], const uint8_t (&y)[32]) {
        d[entry] = before(entry) + products_of<T, 32>(x, y);
      });
}
template EXPORTED void wgmma_bytes<uint8_t>(uint32_t*, int, uint32_t, uint32_t, int);
template EXPORTED void wgmma_bytes<int8_t>(uint32_t*, int, uint32_t, uint32_t, int);

template <typename Byte, int PARTS>
void multiply_bytes(uint32_t (&d)[4], const uint32_t (&c)[4], const uint32_t (&own)[3 * PARTS]) {
  const int g = current->lane / 4, part = current->lane % 4;
  Group& warp = *current->warp;
  auto& bytes = warp.now().bytes;
  for (int i = 0; i < 3 * PARTS; ++i) std::memcpy(&bytes[i][g][4 * part], &own[i], 4);
  arrive(warp);
  for (int entry = 0; entry < 4; ++entry) {
    uint32_t sum = c[entry];
    for (int i = 0; i < 3 * PARTS; i += 3)
      sum += products_of<Byte, 16>(bytes[i + entry / 2][g], bytes[i + 2][2 * part + entry % 2]);
    d[entry] = sum;
  }
}
template EXPORTED void multiply_bytes<uint8_t, 1>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[3]);
template EXPORTED void multiply_bytes<uint8_t, 2>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[6]);
template EXPORTED void multiply_bytes<int8_t, 1>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[3]);
template EXPORTED void multiply_bytes<int8_t, 2>(uint32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[6]);

Barrier& barrier_of(const Block& block, uint32_t address) { return held[&block - cluster].barriers[address]; }

void run_threads(void (*body)(void**), void** arguments, Size grid, Size threads, unsigned blocks, bool dynamic,
                 char* shared, size_t statics) {
  const unsigned count = threads.x * threads.y * threads.z;
  body_now = body;
  arguments_now = arguments;
  gridDim = grid;
  blockDim = threads;
  if (blocks_held.size() < blocks) blocks_held.resize(blocks), held.resize(blocks);
  if (contexts.size() < blocks * count) contexts.resize(blocks * count);
  cluster = blocks_held.data();
  blocks_of_cluster = blocks;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; x += blocks) {
        together.begin(blocks * count);
        for (unsigned r = 0; r < blocks; ++r) {
          Block& block = cluster[r];
          Held& own = held[r];
          own.statics.assign(statics, static_cast<char>(0xa5));
          own.memory.assign(dynamic ? DYNAMIC + 1024 : 0, 0xa5);
          own.barriers.clear();
          block.index = {x + r, y, z};
          block.all.begin(count);
          block.warps = begin(own.warps, (count + 31) / 32);
          block.warpgroups = begin(own.warpgroups, (count + 127) / 128);
          for (Group& group : block.named) group.begin(0);
          block.statics = own.statics.data();
          block.dynamic = own.memory.data() + (1024 - reinterpret_cast<uintptr_t>(own.memory.data()) % 1024);
          for (unsigned i = 0; i < count; ++i) {
            Context& thread = contexts[r * count + i];
            thread.index = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
            thread.lane = i % 32;
            thread.warp = &block.warps[i / 32];
            thread.warpgroup = &block.warpgroups[i / 128];
            ++thread.warp->alive;
            ++thread.warpgroup->alive;
            thread.over = false;
            thread.awaited = nullptr;
          }
        }
        while (together.alive > 0)
          for (unsigned r = 0; r < blocks; ++r) {
            here = &cluster[r];
            blockIdx = here->index;
            if (blocks > 1 && statics > 0) std::memcpy(shared, here->statics, statics);
            once(&contexts[r * count], count);
            if (blocks > 1 && statics > 0) std::memcpy(here->statics, shared, statics);
          }
      }
}
