// One optimiser step for S seeds: look at each seed's gradient, if nobody has, then apply it or leave the seed as it was.
// gpu.py puts the sizes in front of this text; optimisers.py has the formulas.
//
// Grid of both kernels: blocks for the parts of PART values of a seed, and S. A part of the look begins at the seed's own
// first value, so that the order of a norm's sum depends on P alone; a part of the step begins at a multiple of 16 bytes.

constexpr int WARPS = THREADS / 32;

extern __shared__ float4 shared_memory[];  // a float for each warp

enum Clip { CLIP_NONE, CLIP_ELEMENTWISE, CLIP_NORM };

struct Arguments {
  float *parameters, *first, *second, *third, *average;  // [S, P]: the optimiser's moments in their order
  const float* gradient;                                 // [S, P]
  const float* costs;                                    // [S, B]
  const float* rates;                                    // [S]
  float* squares;                                        // [S, parts]: sums of squares, NaN where not finite
  const long long* counts;                               // [S]: `applied` before this update; null but for Adam
  long long* applied;                                    // [S]
  bool* skipped;                                         // [S]
  long long size;                                        // P
  int batch, parts, adam, clip;
  float clip_at, decay_of_average;
  float numbers[3];                                      // the optimiser's hyper-parameters
};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) <= 3.402823466e38f; }

extern "C" __global__ void __launch_bounds__(THREADS) update_look(const __grid_constant__ Arguments a) {
  float* sums = (float*)shared_memory;
  const int seed = blockIdx.y;
  const float* gradient = a.gradient + seed * a.size;
  const long long begin = (long long)blockIdx.x * PART, end = min(begin + PART, a.size);
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
  const float* costs = a.costs + seed * (long long)a.batch;
  for (int b = blockIdx.x * THREADS + threadIdx.x; b < a.batch; b += a.parts * THREADS) good = good && finite(costs[b]);
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  good = __syncthreads_and(good);
  if (threadIdx.x == 0) {
    float total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w];
    a.squares[seed * a.parts + blockIdx.x] = good ? total : __int_as_float(0x7fffffff);
  }
}

struct Step {
  float scale, limit, rate, unbias_first, unbias_second, decay_of_average;
  float x, y, z;  // decay, momentum and epsilon; or Adam's betas and epsilon
  bool adam;
};
// One parameter: gradient g, weight w, the moments in order, and the moving average. Where a product is added to is
// written out, because the compiler's choice may differ between two places of this text, and a seed's place among others
// decides by which of them it goes.
__device__ __forceinline__ void apply(const Step& s, float g, float& w, float& first, float& second, float& third, float& average) {
  g = __fmul_rn(g, s.scale);
  if (g == g) g = fminf(fmaxf(g, -s.limit), s.limit);  // they would make a number of a NaN that nobody looked for
  if (s.adam) {
    first = __fmaf_rn(s.x, first, __fmul_rn(1.0f - s.x, g));
    second = __fmaf_rn(s.y, second, __fmul_rn(__fmul_rn(1.0f - s.y, g), g));
    const float root = __fadd_rn(sqrtf(__fmul_rn(second, s.unbias_second)), s.z);
    w = __fadd_rn(w, -(__fmul_rn(s.rate, __fmul_rn(first, s.unbias_first)) / root));
  } else {
    first = __fmaf_rn(s.x, first, __fmul_rn(__fmul_rn(1.0f - s.x, g), g));
    second = __fmaf_rn(s.x, second, __fmul_rn(1.0f - s.x, g));
    const float root = sqrtf(__fadd_rn(fmaxf(__fmaf_rn(-second, second, first), 0.0f), s.z));
    third = __fmaf_rn(s.y, third, -(__fmul_rn(s.rate, g) / root));
    w = __fadd_rn(w, third);
  }
  average = __fmaf_rn(s.decay_of_average, average, __fmul_rn(1.0f - s.decay_of_average, w));
}

// Four neighbouring values of everything. What no other kernel reads passes through the cache without staying there.
struct Four {
  float4 gradient, weight, first, second, third = make_float4(0, 0, 0, 0), average = make_float4(0, 0, 0, 0);

  __device__ __forceinline__ void load(const Arguments& a, long long at) {
    gradient = *(const float4*)(a.gradient + at);
    weight = *(const float4*)(a.parameters + at);
    first = __ldcs((const float4*)(a.first + at));
    second = __ldcs((const float4*)(a.second + at));
    if (a.third) third = __ldcs((const float4*)(a.third + at));
    if (a.average) average = __ldcs((const float4*)(a.average + at));
  }
  __device__ __forceinline__ void step(const Step& s) {
    apply(s, gradient.x, weight.x, first.x, second.x, third.x, average.x);
    apply(s, gradient.y, weight.y, first.y, second.y, third.y, average.y);
    apply(s, gradient.z, weight.z, first.z, second.z, third.z, average.z);
    apply(s, gradient.w, weight.w, first.w, second.w, third.w, average.w);
  }
  __device__ __forceinline__ void store(const Arguments& a, long long at) const {
    *(float4*)(a.parameters + at) = weight;
    __stcs((float4*)(a.first + at), first);
    __stcs((float4*)(a.second + at), second);
    if (a.third) __stcs((float4*)(a.third + at), third);
    if (a.average) __stcs((float4*)(a.average + at), average);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS) update_apply(const __grid_constant__ Arguments a) {
  constexpr int FOURS = PART / (4 * THREADS);
  const int seed = blockIdx.y;
  const long long offset = seed * a.size, end = offset + a.size;
  const long long mine = offset / 4 * 4 + (long long)blockIdx.x * PART + 4 * threadIdx.x;
  Four fours[FOURS];
#pragma unroll
  for (int i = 0; i < FOURS; i++) {  // before it is known whether they are needed: so they are on their way meanwhile
    const long long at = mine + 4 * THREADS * i;
    if (at >= offset && at + 4 <= end) fours[i].load(a, at);
  }
  float squares = 0;
  bool good = true;
#pragma unroll 8
  for (int part = 0; part < a.parts; part++) {
    const float sum = a.squares[seed * a.parts + part];
    good = good && sum == sum;
    squares += sum;
  }
  // a norm whose square overflows is not usable either
  if (a.clip == CLIP_NORM) good = good && finite(squares);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    a.skipped[seed] = !good;
    a.applied[seed] += good;
  }
  if (!good) return;
  const float scale = a.clip == CLIP_NORM ? a.clip_at / fmaxf(sqrtf(squares), a.clip_at) : 1.0f;
  const float limit = a.clip == CLIP_ELEMENTWISE ? a.clip_at : 3.402823466e38f;
  float unbias_first = 1.0f, unbias_second = 1.0f;
  if (a.adam) {
    const long long count = a.counts[seed] + 1;
    unbias_first = 1.0f / (float)(1.0 - pow((double)a.numbers[0], (double)count));
    unbias_second = 1.0f / (float)(1.0 - pow((double)a.numbers[1], (double)count));
  }
  const Step step{scale, limit, a.rates[seed], unbias_first, unbias_second, a.decay_of_average, a.numbers[0], a.numbers[1], a.numbers[2], a.adam != 0};
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    const long long at = mine + 4 * THREADS * i;
    if (at >= offset && at + 4 <= end) {
      fours[i].step(step);
      fours[i].store(a, at);
    } else {  // a seed's first or last few, beside a neighbour's
      for (long long one = max(at, offset); one < min(at + 4, end); one++) {
        float unused = 0;
        float &third = a.third ? a.third[one] : unused, &average = a.average ? a.average[one] : unused;
        apply(step, a.gradient[one], a.parameters[one], a.first[one], a.second[one], third, average);
      }
    }
  }
}
