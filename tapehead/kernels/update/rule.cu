// The optimiser step for one parameter, for every kernel that applies one. gpu.py puts the constants in front of this
// text; reference.py has the formulas.

enum Clip { CLIP_NONE, CLIP_ELEMENTWISE, CLIP_NORM };

struct Rule {
  const float* rate_tensor;  // null: `rate`
  float rate, clip_at, decay_of_average;
  int adam, clip;
};

// The tensors that an update changes, [S, P] each; the moments in contract.MOMENTS's order, null where there are none.
struct Learned {
  float *parameters, *first, *second, *third, *average;
};

struct Step {
  float scale, limit, rate, unbias_first, unbias_second, decay_of_average;
  bool adam;
};

__device__ __forceinline__ bool finite(float x) { return fabsf(x) <= 3.402823466e38f; }

// count: of the update, from one on. scale: of the gradient, for clipping by norm.
__device__ __forceinline__ Step step_of(const Rule& rule, long long count, float scale) {
  const float limit = rule.clip == CLIP_ELEMENTWISE ? rule.clip_at : 3.402823466e38f;
  float unbias_first = 1.0f, unbias_second = 1.0f;
  if (rule.adam) {
    unbias_first = 1.0f / (float)(1.0 - pow((double)ADAM_BETA_1, (double)count));
    unbias_second = 1.0f / (float)(1.0 - pow((double)ADAM_BETA_2, (double)count));
  }
  return Step{scale, limit, rule.rate_tensor ? *rule.rate_tensor : rule.rate, unbias_first, unbias_second, rule.decay_of_average, rule.adam != 0};
}

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
