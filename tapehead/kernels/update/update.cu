// One optimiser step for S seeds: look at each seed's gradient, then apply it or leave the seed as it was.
// gpu.py puts the optimiser's constants in front of this text; reference.py has the formulas.
//
// Grid of both kernels: PARTS blocks for each seed. The order of a norm's sum depends on P alone.

constexpr int WARPS = THREADS / 32;

extern __shared__ float4 shared_memory[];  // a float for each warp

enum Clip { CLIP_NONE, CLIP_ELEMENTWISE, CLIP_NORM };

struct Arguments {
  float *parameters, *first, *second, *third, *average;  // [S, P]: the moments in contract.MOMENTS's order
  const float* gradient;                                 // [S, P]
  const float* costs;                                    // [S, B]
  const float* rate_tensor;                              // null: `rate`
  float* seen;                                           // [S, PARTS]: sums of squares, NaN where not finite
  long long* applied;                                    // [S]
  bool* skipped;                                         // [S]
  long long size;                                        // P
  int seeds, batch, adam, clip;
  float clip_at, decay_of_average, rate;
};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) <= 3.402823466e38f; }

__device__ __forceinline__ void my_part(const Arguments& a, long long& begin, long long& end) {
  const long long length = ((a.size + PARTS - 1) / PARTS + 3) / 4 * 4;
  begin = min(blockIdx.x * length, a.size);
  end = begin + length < a.size ? begin + length : a.size;
}

extern "C" __global__ void __launch_bounds__(THREADS) update_look(const __grid_constant__ Arguments a) {
  float* sums = (float*)shared_memory;
  const int seed = blockIdx.y;
  const float* gradient = a.gradient + seed * a.size;
  long long begin, end;
  my_part(a, begin, end);
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
  for (int b = blockIdx.x * THREADS + threadIdx.x; b < a.batch; b += PARTS * THREADS) good = good && finite(a.costs[seed * (long long)a.batch + b]);
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  good = __syncthreads_and(good);
  if (threadIdx.x == 0) {
    float total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w];
    a.seen[seed * PARTS + blockIdx.x] = good ? total : __int_as_float(0x7fffffff);
  }
}

struct Step {
  float scale, limit, rate, unbias_first, unbias_second, decay_of_average;
  bool adam;
};
// One parameter: gradient g, weight w, the moments in order, and the moving average.
__device__ __forceinline__ void apply(const Step& s, float g, float& w, float& first, float& second, float& third, float& average) {
  g = fminf(fmaxf(g * s.scale, -s.limit), s.limit);
  if (s.adam) {
    first = ADAM_BETA_1 * first + (1.0f - ADAM_BETA_1) * g;
    second = ADAM_BETA_2 * second + (1.0f - ADAM_BETA_2) * g * g;
    w -= s.rate * (first * s.unbias_first) / (sqrtf(second * s.unbias_second) + ADAM_EPSILON);
  } else {
    first = GRAVES_DECAY * first + (1.0f - GRAVES_DECAY) * g * g;
    second = GRAVES_DECAY * second + (1.0f - GRAVES_DECAY) * g;
    third = GRAVES_MOMENTUM * third - s.rate * g / sqrtf(fmaxf(first - second * second, 0.0f) + GRAVES_EPSILON);
    w += third;
  }
  average = s.decay_of_average * average + (1.0f - s.decay_of_average) * w;
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
  if (a.clip == CLIP_NORM) good = good && finite(squares);
  const long long count = a.applied[seed] + 1;
  if (blockIdx.x == 0 && threadIdx.x == 0) a.skipped[seed] = !good;
  if (!good) return;
  const float rate = a.rate_tensor ? *a.rate_tensor : a.rate;
  const float scale = a.clip == CLIP_NORM ? a.clip_at / fmaxf(sqrtf(squares), a.clip_at) : 1.0f;
  const float limit = a.clip == CLIP_ELEMENTWISE ? a.clip_at : 3.402823466e38f;
  float unbias_first = 1.0f, unbias_second = 1.0f;
  if (a.adam) {
    unbias_first = 1.0f / (float)(1.0 - pow((double)ADAM_BETA_1, (double)count));
    unbias_second = 1.0f / (float)(1.0 - pow((double)ADAM_BETA_2, (double)count));
  }
  const Step step{scale, limit, rate, unbias_first, unbias_second, a.decay_of_average, a.adam != 0};
  const long long offset = seed * a.size;
  long long begin, end;
  my_part(a, begin, end);
  if (a.size % 4 == 0) {  // then every seed starts at a multiple of 16 bytes
    for (long long i = begin + 4 * threadIdx.x; i < end; i += 4 * THREADS) {
      const long long at = offset + i;
      float4 g = *(const float4*)(a.gradient + at), w = *(const float4*)(a.parameters + at), zero = make_float4(0, 0, 0, 0);
      float4 n = *(const float4*)(a.first + at), m = *(const float4*)(a.second + at);
      float4 d = a.third ? *(const float4*)(a.third + at) : zero, mean = a.average ? *(const float4*)(a.average + at) : zero;
      apply(step, g.x, w.x, n.x, m.x, d.x, mean.x);
      apply(step, g.y, w.y, n.y, m.y, d.y, mean.y);
      apply(step, g.z, w.z, n.z, m.z, d.z, mean.z);
      apply(step, g.w, w.w, n.w, m.w, d.w, mean.w);
      *(float4*)(a.parameters + at) = w;
      *(float4*)(a.first + at) = n;
      *(float4*)(a.second + at) = m;
      if (a.third) *(float4*)(a.third + at) = d;
      if (a.average) *(float4*)(a.average + at) = mean;
    }
  } else {
    for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
      const long long at = offset + i;
      float unused = 0;
      apply(step, a.gradient[at], a.parameters[at], a.first[at], a.second[at], a.third ? a.third[at] : unused, a.average ? a.average[at] : unused);
    }
  }
}

// Counts the updates that were applied; its own launch, because every block above reads the count.
extern "C" __global__ void update_count(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.x * blockDim.x + threadIdx.x;
  if (seed < a.seeds && !a.skipped[seed]) a.applied[seed]++;
}
