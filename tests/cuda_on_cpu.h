// Enough of CUDA to run scan.cu and update.cu on a CPU, one thread of a block after the other: every CUDA thread is a fibre that runs
// until its next barrier or exchange. Slow and exact; it finds wrong arithmetic and wrong indices, not races.
#include <algorithm>
#include <cmath>
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

namespace fibres {
struct Barrier { int size = 0, arrived = 0, generation = 0; };
static std::vector<ucontext_t> contexts;
static std::vector<std::vector<char>> stacks;
static std::vector<bool> done;
static ucontext_t scheduler;
static int current;
static Barrier cluster;
static std::vector<Barrier> blocks, warps;
static std::vector<float4> memories;  // shared memory of all blocks of a cluster
static std::vector<float> exchanged;
static void (*body)(const void*);
static const void* argument;
struct Copy { float* to; const float* from; bool used; };
static std::vector<std::vector<Copy>> copies;  // of each thread, asked for and not waited for
constexpr unsigned UNTOUCHED = 0x7fc00000;     // a NaN
constexpr int SHARED_WORDS = SHARED_VECTORS * 4;

inline void wait(Barrier& barrier) {
  const int generation = barrier.generation;
  if (++barrier.arrived == barrier.size) { barrier.arrived = 0; barrier.generation++; return; }
  while (barrier.generation == generation) swapcontext(&contexts[current], &scheduler);
}
static void start() { body(argument); done[current] = true; swapcontext(&contexts[current], &scheduler); }

// Whether the blocks of a cluster kept to their shared memory and waited for all their copies.
static bool run_cluster(int first, int size, int threads, int shared_bytes) {
  const int all = size * threads;
  memories.resize(size * SHARED_VECTORS);
  unsigned* words = (unsigned*)memories.data();
  std::fill(words, words + size * SHARED_WORDS, UNTOUCHED);
  copies.assign(all, {});
  contexts.resize(all); stacks.resize(all); done.assign(all, false); exchanged.resize(all);
  cluster = Barrier{all}; blocks.assign(size, Barrier{threads}); warps.assign(all / 32, Barrier{32});
  for (int i = 0; i < all; i++) {
    stacks[i].resize(1 << 16);
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stacks[i].data(); contexts[i].uc_stack.ss_size = stacks[i].size(); contexts[i].uc_link = nullptr;
    makecontext(&contexts[i], start, 0);
  }
  for (int left = all; left > 0;) {
    left = 0;
    for (int i = 0; i < all; i++) {
      if (done[i]) continue;
      left++; current = i; threadIdx = {i % threads, 0, 0}; blockIdx.x = first + i / threads;
      swapcontext(&scheduler, &contexts[i]);
    }
  }
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

inline void emulated_copy(float* to, const float* from, bool used) { fibres::copies[fibres::current].push_back({to, from, used}); }
inline void emulated_wait() {
  for (const fibres::Copy& copy : fibres::copies[fibres::current]) *copy.to = copy.used ? *copy.from : 0.0f;
  fibres::copies[fibres::current].clear();
}
inline float4* memory_of_block() { return fibres::memories.data() + fibres::current / blockDim.x * SHARED_VECTORS; }
inline void emulated_cluster_wait() { fibres::wait(fibres::cluster); }
inline fibres::Barrier& barrier_of_block() { return fibres::blocks[fibres::current / blockDim.x]; }
inline void __syncthreads() { fibres::wait(barrier_of_block()); }
inline float __shfl_xor_sync(unsigned, float x, int bit) {
  const int me = fibres::current;
  fibres::exchanged[me] = x;
  fibres::wait(fibres::warps[me / 32]);
  const float y = fibres::exchanged[me ^ bit];
  fibres::wait(fibres::warps[me / 32]);
  return y;
}
inline float __shfl_sync(unsigned, float x, int lane) {
  const int me = fibres::current;
  fibres::exchanged[me] = x;
  fibres::wait(fibres::warps[me / 32]);
  const float y = fibres::exchanged[me / 32 * 32 + (lane & 31)];
  fibres::wait(fibres::warps[me / 32]);
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
