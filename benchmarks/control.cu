// Kernels whose races in shared memory are known, to be put under a tool that looks for races. As in the scans, a block's teams of
// 128 threads wait for each other at barriers of their own, end at different steps, and meet all at a barrier of the block.
struct Arguments {
  float* values;  // [1024]: read, then written
  int steps;
};
extern __shared__ float4 shared_memory[];
constexpr int TEAM = 128;

__device__ __forceinline__ void sync(int team) {
#ifdef __CUDA_ARCH__
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(TEAM) : "memory");
#else
  emulated_team_wait(team, TEAM);
#endif
}
__device__ __forceinline__ void copy(float* to, const float* from) {
#ifdef __CUDA_ARCH__
  const unsigned target = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(target), "l"(from) : "memory");
#else
  emulated_copy(to, from, true);
#endif
}
__device__ __forceinline__ void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulated_wait();
#endif
}

// Its race: words are read, between two barriers, while copies into them are under way.
__device__ __forceinline__ void reads_under_way(const Arguments& a) {
  const int team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
  float* own = (float*)shared_memory + team * TEAM;
  float sum = 0;
  for (int t = 0; t < a.steps; t++) {
    copy(own + thread, a.values + threadIdx.x);
    sync(team);
    sum += own[(thread + 37) % TEAM];
    sync(team);
    wait_for_copies();
    sync(team);
  }
  a.values[512 + threadIdx.x] = sum;
}

template <bool COPIES, bool WHOLE>
__device__ __forceinline__ void steps(const Arguments& a) {
  const int team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
  float* own = (float*)shared_memory + team * TEAM;
  float sum = 0;
  for (int t = 0; t < a.steps; t++) {
    __syncthreads();
    if (t >= a.steps - team) continue;
    for (int phase = 0; phase < 4; phase++) {
      if (COPIES) {
        copy(own + thread, a.values + threadIdx.x);
        wait_for_copies();
      } else {
        own[thread] = t + phase + thread;
      }
      if (WHOLE || phase < 3) sync(team);  // written
      sum += own[(thread + 37) % TEAM];
      sync(team);  // read
    }
  }
  a.values[512 + threadIdx.x] = sum;
}

// Words that one team writes and another reads: barriers of the whole block alone order them, and between these the teams meet
// barriers of their own, of which a team that has ended meets none. Its race: that barrier is missing.
template <bool ORDERED>
__device__ __forceinline__ void exchanges(const Arguments& a) {
  const int team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
  float *words = (float*)shared_memory, *own = words + 512 + team * TEAM;
  float sum = 0;
  for (int t = 0; t < a.steps; t++) {
    __syncthreads();  // the words have been read
    words[(threadIdx.x + TEAM) % 512] = t + thread;
    if (ORDERED) __syncthreads();
    sum += words[threadIdx.x];
    if (t >= a.steps - team) continue;
    for (int phase = 0; phase < 4; phase++) {
      own[thread] = t + phase + thread;
      sync(team);  // written
      sum += own[(thread + 37) % TEAM];
      sync(team);  // read
    }
  }
  a.values[512 + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(512) control_barriers(const __grid_constant__ Arguments a) { steps<false, true>(a); }
extern "C" __global__ void __launch_bounds__(512) control_copies(const __grid_constant__ Arguments a) { steps<true, true>(a); }
extern "C" __global__ void __launch_bounds__(512) control_early(const __grid_constant__ Arguments a) { reads_under_way(a); }
extern "C" __global__ void __launch_bounds__(512) control_race(const __grid_constant__ Arguments a) { steps<false, false>(a); }
extern "C" __global__ void __launch_bounds__(512) control_exchange(const __grid_constant__ Arguments a) { exchanges<true>(a); }
extern "C" __global__ void __launch_bounds__(512) control_exchange_race(const __grid_constant__ Arguments a) { exchanges<false>(a); }
