// One optimiser step for S seeds: look at each seed's gradient, then apply it or leave the seed as it was.
// gpu.py puts the optimiser's constants in front of this text; reference.py has the formulas.
//
// Grid of both kernels: PARTS blocks for each seed. The order of a norm's sum depends on P alone.

constexpr int WARPS = THREADS / 32;
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
  const long long length = (a.size + PARTS - 1) / PARTS;
  begin = blockIdx.x * length;
  end = begin + length < a.size ? begin + length : a.size;
}

extern "C" __global__ void __launch_bounds__(THREADS) update_look(const __grid_constant__ Arguments a) {
  __shared__ float sums[WARPS];
  const int seed = blockIdx.y;
  const float* gradient = a.gradient + seed * a.size;
  long long begin, end;
  my_part(a, begin, end);
  float sum = 0;
  bool good = true;
#pragma unroll 4
  for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
    const float g = gradient[i];
    good = good && finite(g);
    sum += g * g;
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
  // No two of these overlap: loads of the next values need not wait for the stores of these.
  const long long offset = seed * a.size;
  const float* __restrict__ gradient = a.gradient + offset;
  float *__restrict__ parameters = a.parameters + offset, *__restrict__ average = a.average ? a.average + offset : nullptr;
  float *__restrict__ first = a.first + offset, *__restrict__ second = a.second + offset, *__restrict__ third = a.third + offset;
  long long begin, end;
  my_part(a, begin, end);
#pragma unroll 4
  for (long long i = begin + threadIdx.x; i < end; i += THREADS) {
    const float g = fminf(fmaxf(gradient[i] * scale, -limit), limit);
    float w = parameters[i];
    if (a.adam) {
      const float m = ADAM_BETA_1 * first[i] + (1.0f - ADAM_BETA_1) * g;
      const float v = ADAM_BETA_2 * second[i] + (1.0f - ADAM_BETA_2) * g * g;
      first[i] = m;
      second[i] = v;
      w -= rate * (m * unbias_first) / (sqrtf(v * unbias_second) + ADAM_EPSILON);
    } else {
      const float n = GRAVES_DECAY * first[i] + (1.0f - GRAVES_DECAY) * g * g;
      const float m = GRAVES_DECAY * second[i] + (1.0f - GRAVES_DECAY) * g;
      const float d = GRAVES_MOMENTUM * third[i] - rate * g / sqrtf(fmaxf(n - m * m, 0.0f) + GRAVES_EPSILON);
      first[i] = n;
      second[i] = m;
      third[i] = d;
      w += d;
    }
    parameters[i] = w;
    if (average) average[i] = a.decay_of_average * average[i] + (1.0f - a.decay_of_average) * w;
  }
}

// Counts the updates that were applied; its own launch, because every block above reads the count.
extern "C" __global__ void update_count(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.x * blockDim.x + threadIdx.x;
  if (seed < a.seeds && !a.skipped[seed]) a.applied[seed]++;
}
