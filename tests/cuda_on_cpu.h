// Enough of CUDA to run scan.cu and update.cu on a CPU, one thread of a block after the other: every CUDA thread is a fibre that runs
// until its next barrier or exchange. Slow and exact; it finds wrong arithmetic and wrong indices, and races if it is compiled for
// races_on_cpu.cpp (FIND_RACES). A fibre is entered by setcontext once, then left and resumed by _longjmp, which unlike swapcontext
// asks nothing of the system.
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <ucontext.h>
#include <vector>
using std::max;
using std::min;
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Index { int x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;
constexpr int SHARED_VECTORS = 16384;  // of a block
float4* memory_of_block();
#define shared_memory memory_of_block()
inline float __fdividef(float a, float b) { return a / b; }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcs(T* p, T value) { *p = value; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __int_as_float(int bits) { float x; std::memcpy(&x, &bits, 4); return x; }

#ifdef FIND_RACES
extern "C" {
void races_begin(const void* shared, long bytes, int threads, const int* current);  // of a cluster of blocks
void races_end();
void races_meet(const void* barrier, int size);  // the current thread, at a barrier that orders accesses to memory
void races_copy(void* to);  // 4 bytes, asynchronously
void races_wait(void* to);
}
#else
inline void races_begin(const void*, long, int, const int*) {}
inline void races_end() {}
inline void races_meet(const void*, int) {}
inline void races_copy(void*) {}
inline void races_wait(void*) {}
#endif

namespace fibres {
struct Barrier { int size = 0, arrived = 0, generation = 0; };
struct Fibre {
  ucontext_t entry;
  jmp_buf here;
  std::vector<char> stack;
  bool started, done;
  const Barrier* barrier;  // that it waits at, and the generation that must pass
  int generation;
  bool waits() const { return barrier && barrier->generation == generation; }
};
static std::vector<Fibre> all_fibres;
static jmp_buf scheduler;
static int current;
static Barrier cluster;
static std::vector<Barrier> blocks, warps, teams;
constexpr int MOST_TEAMS = 16;  // of a block
static std::vector<float4> memories;  // shared memory of all blocks of a cluster
static std::vector<float> exchanged;
static void (*body)(const void*);
static const void* argument;
struct Copy { float* to; const float* from; bool used; };
static std::vector<std::vector<Copy>> copies;  // of each thread, asked for and not waited for
constexpr unsigned UNTOUCHED = 0x7fc00000;     // a NaN
constexpr int SHARED_WORDS = SHARED_VECTORS * 4;

__attribute__((noinline)) static void leave(Fibre& fibre) { if (!_setjmp(fibre.here)) _longjmp(scheduler, 1); }
__attribute__((noinline)) static void resume(Fibre& fibre) {
  if (_setjmp(scheduler)) return;
  if (fibre.started) _longjmp(fibre.here, 1);
  fibre.started = true;
  setcontext(&fibre.entry);
}
// Exchanges of a warp wait as well, but order nothing in memory.
inline void wait(Barrier& barrier, bool orders = true) {
  if (orders) races_meet(&barrier, barrier.size);
  const int generation = barrier.generation;
  if (++barrier.arrived == barrier.size) { barrier.arrived = 0; barrier.generation++; return; }
  Fibre& me = all_fibres[current];
  me.barrier = &barrier; me.generation = generation;
  leave(me);
}
static void start() { body(argument); all_fibres[current].done = true; leave(all_fibres[current]); }

// Whether the blocks of a cluster kept to their shared memory and waited for all their copies.
static bool run_cluster(int first, int size, int threads, int shared_bytes) {
  const int all = size * threads;
  memories.resize(size * SHARED_VECTORS);
  unsigned* words = (unsigned*)memories.data();
  std::fill(words, words + size * SHARED_WORDS, UNTOUCHED);
  copies.assign(all, {});
  all_fibres.resize(all); exchanged.resize(all);
  cluster = Barrier{all}; blocks.assign(size, Barrier{threads}); teams.assign(size * MOST_TEAMS, Barrier{}); warps.assign(all / 32, Barrier{32});
  for (Fibre& fibre : all_fibres) {
    fibre.stack.resize(1 << 16); fibre.started = fibre.done = false; fibre.barrier = nullptr;
    getcontext(&fibre.entry);
    fibre.entry.uc_stack.ss_sp = fibre.stack.data(); fibre.entry.uc_stack.ss_size = fibre.stack.size(); fibre.entry.uc_link = nullptr;
    makecontext(&fibre.entry, start, 0);
  }
  races_begin(words, (long)size * SHARED_WORDS * 4, all, &current);
  for (int left = all, moved = 1; left > 0; moved = 0) {
    left = 0;
    for (int i = 0; i < all; i++) {
      if (all_fibres[i].done) continue;
      left++;
      if (all_fibres[i].waits()) continue;
      moved++; current = i; threadIdx = {i % threads, 0, 0}; blockIdx.x = first + i / threads;
      resume(all_fibres[i]);
    }
    if (left && !moved) { races_end(); return false; }  // some wait for others that have ended
  }
  races_end();
  bool good = std::all_of(copies.begin(), copies.end(), [](const std::vector<Copy>& left) { return left.empty(); });
  for (int n = 0; n < size; n++) {
    const unsigned* mine = words + n * SHARED_WORDS;
    good = good && std::all_of(mine + shared_bytes / 4, mine + SHARED_WORDS, [](unsigned word) { return word == UNTOUCHED; });
  }
  return good;
}
static int launch(void (*kernel)(const void*), const void* given, int x, int y, int z, int size, int threads, int shared_bytes) {
  body = kernel; argument = given; gridDim = {x, y, z}; blockDim = {threads, 1, 1};
  int bad = x % size;
  for (int k = 0; k < z; k++) for (int j = 0; j < y; j++) for (int i = 0; i < x; i += size) { blockIdx = {i, j, k}; bad += !run_cluster(i, size, threads, shared_bytes); }
  return bad;
}
}  // namespace fibres

inline void emulated_copy(float* to, const float* from, bool used) {
  races_copy(to);
  fibres::copies[fibres::current].push_back({to, from, used});
}
inline void emulated_wait() {
  for (const fibres::Copy& copy : fibres::copies[fibres::current]) {
    races_wait(copy.to);
    *copy.to = copy.used ? *copy.from : 0.0f;
  }
  fibres::copies[fibres::current].clear();
}
inline float4* memory_of_block() { return fibres::memories.data() + fibres::current / blockDim.x * SHARED_VECTORS; }
inline void emulated_cluster_wait() { fibres::wait(fibres::cluster); }
inline fibres::Barrier& barrier_of_block() { return fibres::blocks[fibres::current / blockDim.x]; }
inline void emulated_team_wait(int team, int size) {
  fibres::Barrier& barrier = fibres::teams[fibres::current / blockDim.x * fibres::MOST_TEAMS + team];
  barrier.size = size;
  fibres::wait(barrier);
}
inline void __syncthreads() { fibres::wait(barrier_of_block()); }
inline float __shfl_xor_sync(unsigned, float x, int bit) {
  const int me = fibres::current;
  fibres::exchanged[me] = x;
  fibres::wait(fibres::warps[me / 32], false);
  const float y = fibres::exchanged[me ^ bit];
  fibres::wait(fibres::warps[me / 32], false);
  return y;
}
inline float __shfl_sync(unsigned, float x, int lane) {
  const int me = fibres::current;
  fibres::exchanged[me] = x;
  fibres::wait(fibres::warps[me / 32], false);
  const float y = fibres::exchanged[me / 32 * 32 + (lane & 31)];
  fibres::wait(fibres::warps[me / 32], false);
  return y;
}
inline bool __syncthreads_and(bool x) {
  const int first = fibres::current / blockDim.x * blockDim.x;
  fibres::exchanged[fibres::current] = x;
  fibres::wait(barrier_of_block());
  bool all = true;
  for (int i = 0; i < blockDim.x; i++) all = all && fibres::exchanged[first + i] != 0.0f;
  fibres::wait(barrier_of_block());
  return all;
}
inline void __syncwarp() { fibres::wait(fibres::warps[fibres::current / 32]); }
inline bool __any_sync(unsigned, bool x) {
  float any = x;
  for (int bit = 1; bit < 32; bit *= 2) any = max(any, __shfl_xor_sync(0, any, bit));
  return any != 0.0f;
}
#define EMULATED(kernel, cluster) \
  extern "C" int run_##kernel(const Arguments* a, int x, int y, int z, int threads, int shared_bytes) { \
    return fibres::launch([](const void* given) { kernel(*(const Arguments*)given); }, a, x, y, z, cluster, threads, shared_bytes); \
  }
