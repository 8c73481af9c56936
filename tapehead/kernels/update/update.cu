// One optimiser step for S seeds: look at each seed's gradient, then apply it or leave the seed as it was.
// gpu.py puts sizes and rule.cu in front of this text; reference.py has the formulas.
//
// Grid: PARTS blocks for each seed. The order of a norm's sum depends on P alone.

constexpr int WARPS = THREADS / 32;

extern __shared__ float4 shared_memory[];  // a float for each warp

struct Arguments {
  Learned learned;
  Rule rule;
  const float* gradient;  // [S, P]
  const float* costs;     // [S, B]
  const bool* done;       // [S]: whose update has been applied already; null: nobody's
  float* seen;            // [S, PARTS]: sums of squares, NaN where not finite
  long long* applied;     // [S]
  bool* skipped;          // [S]
  long long size;         // P
  int seeds, batch;
};

__device__ __forceinline__ void my_part(const Arguments& a, long long& begin, long long& end) {
  const long long length = ((a.size + PARTS - 1) / PARTS + 3) / 4 * 4;
  begin = min(blockIdx.x * length, a.size);
  end = begin + length < a.size ? begin + length : a.size;
}

// The sum of squares of a part of a seed's gradient; NaN if not all of it is finite, or if a cost of the seed is not.
__device__ __forceinline__ float look(const Arguments& a, int seed, long long begin, long long end) {
  float* sums = (float*)shared_memory;
  const float* gradient = a.gradient + seed * a.size;
  float sum = 0;
  bool good = true;
  if (a.size % 4 == 0) {
#pragma unroll 4
    for (long long i = begin + 4 * threadIdx.x; i < end; i += 4 * THREADS) {
      const float4 g = *(const float4*)(gradient + i);
      good = good && finite(g.x) && finite(g.y) && finite(g.z) && finite(g.w);
      sum += g.x * g.x + g.y * g.y + (g.z * g.z + g.w * g.w);
    }
  } else {
#pragma unroll 4
    for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
      const float g = gradient[i];
      good = good && finite(g);
      sum += g * g;
    }
  }
  for (int b = threadIdx.x; b < a.batch; b += THREADS) good = good && finite(a.costs[seed * (long long)a.batch + b]);
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  good = __syncthreads_and(good);
  float total = 0;
  for (int w = 0; w < WARPS; w++) total += sums[w];
  return good ? total : __int_as_float(0x7fffffff);
}

__device__ __forceinline__ void apply_part(const Arguments& a, const Step& step, int seed, long long begin, long long end) {
  const Learned& l = a.learned;
  const long long offset = seed * a.size;
  if (a.size % 4 == 0) {  // then every seed starts at a multiple of 16 bytes
    for (long long i = begin + 4 * threadIdx.x; i < end; i += 4 * THREADS) {
      const long long at = offset + i;
      float4 g = *(const float4*)(a.gradient + at), w = *(const float4*)(l.parameters + at), zero = make_float4(0, 0, 0, 0);
      float4 n = *(const float4*)(l.first + at), m = *(const float4*)(l.second + at);
      float4 d = l.third ? *(const float4*)(l.third + at) : zero, mean = l.average ? *(const float4*)(l.average + at) : zero;
      apply(step, g.x, w.x, n.x, m.x, d.x, mean.x);
      apply(step, g.y, w.y, n.y, m.y, d.y, mean.y);
      apply(step, g.z, w.z, n.z, m.z, d.z, mean.z);
      apply(step, g.w, w.w, n.w, m.w, d.w, mean.w);
      *(float4*)(l.parameters + at) = w;
      *(float4*)(l.first + at) = n;
      *(float4*)(l.second + at) = m;
      if (l.third) *(float4*)(l.third + at) = d;
      if (l.average) *(float4*)(l.average + at) = mean;
    }
  } else {
    for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
      const long long at = offset + i;
      float unused = 0;
      apply(step, a.gradient[at], l.parameters[at], l.first[at], l.second[at], l.third ? l.third[at] : unused, l.average ? l.average[at] : unused);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) update_look(const __grid_constant__ Arguments a) {
  long long begin, end;
  my_part(a, begin, end);
  const float sum = look(a, blockIdx.y, begin, end);
  if (threadIdx.x == 0) a.seen[blockIdx.y * PARTS + blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) update_apply(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.y;
  float squares = 0;
  bool good = true;
  for (int part = 0; part < PARTS; part++) {
    const float sum = a.seen[seed * PARTS + part];
    good = good && sum == sum;
    squares += sum;
  }
  // a norm whose square overflows is not usable either
  if (a.rule.clip == CLIP_NORM) good = good && finite(squares);
  if (blockIdx.x == 0 && threadIdx.x == 0) a.skipped[seed] = !good;
  if (!good) return;
  const float scale = a.rule.clip == CLIP_NORM ? a.rule.clip_at / fmaxf(sqrtf(squares), a.rule.clip_at) : 1.0f;
  long long begin, end;
  my_part(a, begin, end);
  apply_part(a, step_of(a.rule, a.applied[seed] + 1, scale), seed, begin, end);
}

// Counts the updates that were applied; its own launch, because every block above reads the count.
extern "C" __global__ void update_count(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.x * blockDim.x + threadIdx.x;
  if (seed < a.seeds && !a.skipped[seed]) a.applied[seed]++;
}

// All of it for seeds whose update is not `done`, which are rare: a block for each seed. Not for clipping by norm.
extern "C" __global__ void __launch_bounds__(THREADS) update_rest(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.x;
  bool good = a.done[seed];
  if (!good) {
    const float seen = look(a, seed, 0, a.size);
    good = seen == seen;
    if (good) apply_part(a, step_of(a.rule, a.applied[seed] + 1, 1.0f), seed, 0, a.size);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    a.skipped[seed] = !good;
    if (good) a.applied[seed]++;
  }
}
