// The scan of a Differentiable Neural Computer: whole sequences forward and backward, a team of threads for each sequence.
//
// gpu_plan.py writes the sizes and the layout of shared memory in front of this text. README.md has the derivation of the
// backward pass and how the work is laid out; equations_dnc.py and reference.py say what is computed, contract.py what the
// tensors are.
//
// Words: a block runs ROWS sequences of one seed in lockstep, each by a *team* of its threads with a *region* of shared memory
// of its own. Products with weights are the whole block's, which takes every weight once for all of its sequences; all else
// is a team's. *Kept* is what the forward pass writes down for the backward pass. Names that start with d_ are gradients.
// Vectors along the slots have PADDED entries; those beyond a sequence's slots are zero.
//
// Barriers: `__syncthreads` where all teams meet, around the products, whether their sequences have ended or not; `sync` of a
// team elsewhere, in branches that whole teams take. Comments at the phases say what a barrier separates.

constexpr int HEADS = READ_HEADS + 1;  // the write head is the last
constexpr int READS = READ_HEADS * WIDTH, INTERFACE = READ_HEADS * READ_ENTRIES + WRITE_ENTRIES;
constexpr int GATES = LSTM ? 4 * UNITS : UNITS, OWN_UNITS = LSTM ? UNITS : 0;
constexpr int FIRST_BELOW = INPUTS + READS, FIRST_COLUMNS = FIRST_BELOW + OWN_UNITS, UPPER_COLUMNS = UNITS + OWN_UNITS;
constexpr int UPPER_SIZE = GATES * (UPPER_COLUMNS + 1);  // parameters of a layer above the first
constexpr int SUMMARY = UNITS + READS;                    // what the output layer sees
constexpr float NORM_EPSILON = 1e-18f, LINK_EPSILON = 1e-6f, NORM_LIMIT = 1e36f;
constexpr unsigned ALL = 0xffffffffu;

#define UNROLL _Pragma("unroll")

struct State {
  float *memory, *usage, *link, *precedence, *read_weightings, *write_weighting, *reads, *hidden, *cell;
};

// All that the kernels are given; null where a kernel or a mode does not use it.
struct Arguments {
  const float* parameters;   // [S, P]
  const float* inputs;       // [S, T, B, I]
  const long long* lengths;  // [S, B]
  const long long* slots;    // [S, B]
  State initial, final;      // `final` of the backward pass are the gradients that come in
  State d_initial;           // gradients that go out
  float* outputs;            // [S, T, B, O]
  float* kept;               // [S, B, kept_size]
  float4* packed;            // [S, PACKED]
  float* work;               // [S, B, work_size]: what does not fit into shared memory
  const float* targets;      // [S, T, B, O]; null: no loss
  const float* mask;         // [S, T, B]: a step counts where it is not zero
  float* costs;              // [S, B]
  float* d_outputs;          // [S, T, B, O]
  float* d_seen;             // [S, B, T, SEEN_WIDTH]: gradients of what the output layer saw
  float* d_rows;             // [S, B, T, D_WIDTH]: of gates and interface
  float* gradient;           // [chunks, S, P]
  float* d_inputs;           // [S, T, B, I]
  long long kept_size, work_size;
  int seeds, steps, batch;
  int keep;  // whether the forward pass writes more than what the output layer sees
  int chunks, chunk_rows, loss;
};
enum Loss { BINARY, CATEGORICAL };

extern __shared__ float4 shared_memory[];

// --- small functions -----------------------------------------------------------------------------------------------------

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }
__device__ __forceinline__ float softplus_slope(float x) { return x > 20.0f ? 1.0f : sigmoid(x); }
__device__ __forceinline__ float from_lane(float x, int bit) { return __shfl_xor_sync(ALL, x, bit); }
__device__ __forceinline__ float over_warp(float x) {
  UNROLL for (int bit = 16; bit > 0; bit /= 2) x += from_lane(x, bit);
  return x;
}
__device__ __forceinline__ float most_of_warp(float x) {
  UNROLL for (int bit = 16; bit > 0; bit /= 2) x = fmaxf(x, from_lane(x, bit));
  return x;
}
template <int LANES>
__device__ __forceinline__ float over_lanes(float x) {
  UNROLL for (int bit = LANES / 2; bit > 0; bit /= 2) x += from_lane(x, bit);
  return x;
}
// body(m) for the values of a slot that are a lane's: every LANES-th.
template <int LANES, class Body>
__device__ __forceinline__ void for_columns(int part, const Body& body) {
  constexpr int COLUMNS = (WIDTH + LANES - 1) / LANES;
#pragma unroll(COLUMNS <= 32 ? COLUMNS : 8)
  for (int k = 0; k < COLUMNS; k++) {
    const int m = part + k * LANES;
    if (WIDTH % LANES == 0 || m < WIDTH) body(m);
  }
}
__device__ __forceinline__ float4 zeros() { return make_float4(0, 0, 0, 0); }
__device__ __forceinline__ void add(float4& sum, float4 x, float factor) {
  sum.x += factor * x.x;
  sum.y += factor * x.y;
  sum.z += factor * x.z;
  sum.w += factor * x.w;
}
__device__ __forceinline__ float dot(float4 a, float4 b) { return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w); }
__device__ __forceinline__ void clear_place(float4& x, int place) {  // 0 to 3; nothing elsewhere
  if (place == 0) x.x = 0.0f;
  if (place == 1) x.y = 0.0f;
  if (place == 2) x.z = 0.0f;
  if (place == 3) x.w = 0.0f;
}

// Sums COUNT values over the lanes below 2 * BIT that differ from this one, and stores value i at target[i * PADDED]. A lane
// gives away the half of the list that its partner keeps, so the list halves at every exchange.
template <int COUNT, int BIT>
__device__ __forceinline__ void fold(float* v, int lane, int first, int end, float* target, bool store) {
  if constexpr (BIT == 0) {
    UNROLL for (int i = 0; i < COUNT; i++)
      if (store && first + i < end) target[(first + i) * PADDED] = v[i];
  } else if constexpr (COUNT == 1) {
    v[0] += from_lane(v[0], BIT);
    fold<1, BIT / 2>(v, lane, first, end, target, store && !(lane & BIT));
  } else {
    constexpr int half = (COUNT + 1) / 2;
    const bool upper = lane & BIT;
    UNROLL for (int i = 0; i < half; i++) {
      const float low = v[i], high = i + half < COUNT ? v[i + half] : 0.0f;
      v[i] = (upper ? high : low) + from_lane(upper ? low : high, BIT);
    }
    fold<half, BIT / 2>(v, lane, upper ? first + half : first, upper ? end : min(end, first + half), target, store);
  }
}

// From global to shared memory without a register on the way.
__device__ __forceinline__ void copy_four(float* to, const float* from) {
#ifdef __CUDA_ARCH__
  const unsigned target = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(from) : "memory");
#else
  UNROLL for (int i = 0; i < 4; i++) emulated_copy(to + i, from + i, true);
#endif
}
__device__ __forceinline__ void copy_or_zero(float* to, const float* from, bool used) {  // zero if it is not `used`
#ifdef __CUDA_ARCH__
  const unsigned target = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(from), "r"(used ? 4 : 0) : "memory");
#else
  emulated_copy(to, from, used);
#endif
}
__device__ __forceinline__ void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulated_wait();
#endif
}

// --- where things are ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ long long weight_at(int layer) {
  return layer == 0 ? WEIGHT_FIRST : WEIGHT_UPPER + (long long)(layer - 1) * UPPER_SIZE;
}
__device__ __forceinline__ long long bias_at(int layer) {
  return weight_at(layer) + (long long)GATES * (layer == 0 ? FIRST_COLUMNS : UPPER_COLUMNS);
}

// What the forward pass writes down of one sequence, part by part; every part begins at a multiple of four.
struct Kept {
  float* base;
  long long steps;
  int width;  // of the rows below
  __device__ __forceinline__ Kept(const Arguments& a, long long at)
      : base(a.kept + at * a.kept_size), steps(a.steps), width(a.keep ? SEEN_WIDTH : SUMMARY_PADDED) {}
  // What layers saw: [hidden, reads] for the output layer, then for each layer of the controller.
  __device__ __forceinline__ float* seen(long long t) const { return base + t * width; }
  __device__ __forceinline__ float* below(long long t, int layer) const {
    return seen(t) + SUMMARY_PADDED + (layer == 0 ? 0 : FIRST_PADDED + (layer - 1) * UPPER_PADDED);
  }
  __device__ __forceinline__ float* raw(long long t) const { return seen(steps) + t * INTERFACE_PADDED; }
  __device__ __forceinline__ float* gates(long long t, int layer) const {  // after the activations
    return raw(steps) + (t * LAYERS + layer) * GATES_PADDED;
  }
  __device__ __forceinline__ float* cells(long long t, int layer) const {  // before step t
    return gates(steps, 0) + (t * LAYERS + layer) * UNITS_PADDED;
  }
  __device__ __forceinline__ float* states(long long t) const {  // before step t
    return cells(LSTM ? steps + 1 : 0, 0) + t * STATE_SIZE;
  }
  __device__ __forceinline__ float* vectors(long long t) const { return states(steps + 1) + t * VECTORS_SIZE; }
  __device__ __forceinline__ float* tape(long long t) const { return vectors(steps) + t * TAPE_SIZE; }  // before step t
  __device__ __forceinline__ float* link(long long segment) const { return tape(steps) + segment * LINK_SIZE; }
};

// One sequence, and a thread's place in its team. A is the layout of the pass.
template <class A>
struct Row {
  int team, thread, warp, lane;  // of the block; of the team
  int seed, b, n, length;        // n slots
  bool there;
  long long at;
  float* own;  // region
  __device__ __forceinline__ explicit Row(const Arguments& a) {
    team = threadIdx.x / A::TEAM;
    thread = threadIdx.x % A::TEAM;
    warp = thread / 32;
    lane = thread % 32;
    seed = blockIdx.y;
    b = blockIdx.x * A::ROWS + team;
    there = b < a.batch;
    at = (long long)seed * a.batch + min(b, a.batch - 1);
    n = min(max((int)a.slots[at], 1), TAPE);
    length = there ? min(max((int)a.lengths[at], 0), a.steps) : 0;
    own = (float*)shared_memory + team * A::REGION;
  }
  __device__ __forceinline__ void sync() const {  // of the team
    if constexpr (A::ROWS == 1) {
      __syncthreads();
    } else {
#ifdef __CUDA_ARCH__
      asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(A::TEAM) : "memory");
#else
      emulated_team_wait(team, A::TEAM);
#endif
    }
  }
  __device__ __forceinline__ int longest(const Arguments& a) const {  // of the block's sequences
    int most = 0;
    for (int k = 0; k < A::ROWS; k++) {
      const int other = blockIdx.x * A::ROWS + k;
      if (other < a.batch) most = max(most, min((int)a.lengths[(long long)seed * a.batch + other], a.steps));
    }
    return most;
  }
  // The memory [TAPE, STRIDE] and the link matrix [TAPE, PADDED], or their gradients.
  __device__ __forceinline__ float* tape(const Arguments& a) const {
    if constexpr (A::TAPE_SHARED) return own + A::MEMORY;
    else return a.work + at * a.work_size + A::WORK_TAPE;
  }
  __device__ __forceinline__ float* link(const Arguments& a) const {
    if constexpr (A::LINK_SHARED) return own + A::LINK;
    else return a.work + at * a.work_size + A::WORK_LINK;
  }
  __device__ __forceinline__ float* mask(int head) const { return own + (MASKED ? A::MASKS + head * WIDTH_PADDED : 0); }
  __device__ __forceinline__ float* key(int head) const { return own + A::KEYS + head * WIDTH_PADDED; }
  __device__ __forceinline__ float* focus(int head) const {
    return own + (MASKED ? A::FOCUSES : A::KEYS) + head * WIDTH_PADDED;
  }
  __device__ __forceinline__ float* scalars(int head) const { return own + A::SCALARS + 8 * head; }
};

// Of what a head asks for: these scalars. The write head has gates where read heads have a free gate and modes.
enum Scalars { STRENGTH, INVERSE, FREE, MODES, SHARPNESS = 6, ALLOCATION_GATE = 2, WRITE_GATE = 3 };

// Vectors along the slots. Of a state: the weightings of the read heads, then that of the write head, usage and precedence.
__device__ __forceinline__ constexpr int reading_at(int head) { return head * PADDED; }
constexpr int WRITTEN = READ_HEADS * PADDED, USAGE = WRITTEN + PADDED, PRECEDENCE = USAGE + PADDED;
// Of a step: content weightings and similarities of all heads, forward and backward weightings, allocation and order.
__device__ __forceinline__ constexpr int content_at(int head) { return head * PADDED; }
__device__ __forceinline__ constexpr int similarity_at(int head) { return (HEADS + head) * PADDED; }
__device__ __forceinline__ constexpr int forward_at(int head) { return (2 * HEADS + head) * PADDED; }
__device__ __forceinline__ constexpr int backward_at(int head) { return (2 * HEADS + READ_HEADS + head) * PADDED; }
constexpr int RAW_LINKS = 2 * HEADS + 2 * READ_HEADS;
__device__ __forceinline__ constexpr int raw_forward_at(int head) { return SHARP ? (RAW_LINKS + head) * PADDED : forward_at(head); }
__device__ __forceinline__ constexpr int raw_backward_at(int head) {
  return SHARP ? (RAW_LINKS + READ_HEADS + head) * PADDED : backward_at(head);
}
constexpr int ALLOCATION = (RAW_LINKS + (SHARP ? 2 * READ_HEADS : 0)) * PADDED, ORDER = ALLOCATION + PADDED;

template <class A>
__device__ __forceinline__ void clear_region(const Row<A>& row) {
  for (int i = row.thread; i < A::REGION; i += A::TEAM) row.own[i] = 0.0f;
}
// Floats of shared memory to global memory, four at a time.
template <class A>
__device__ __forceinline__ void keep_floats(const Row<A>& row, const float* from, float* to, int size) {
  for (int i = 4 * row.thread; i < size; i += 4 * A::TEAM) *(float4*)(to + i) = *(const float4*)(from + i);
}
template <class A>
__device__ __forceinline__ void fetch(const Row<A>& row, const float* from, float* to, int size) {
  for (int i = 4 * row.thread; i < size; i += 4 * A::TEAM) copy_four(to + i, from + i);
}

// The parts of a state that run along the slots; null stands for zeros. What lies beyond the row's slots becomes zero.
template <class A>
__device__ __forceinline__ void load_slots(const Arguments& a, const Row<A>& row, const State& from, float* vectors) {
  float *tape = row.tape(a), *link = row.link(a);
  const long long at = row.at;
  const bool given = from.memory != nullptr && row.there;
  for (int k = row.thread; k < TAPE_SIZE; k += A::TEAM) {
    const int i = k / STRIDE, m = k % STRIDE;
    tape[k] = given && i < row.n && m < WIDTH ? from.memory[(at * TAPE + i) * WIDTH + m] : 0.0f;
  }
  for (int k = row.thread; k < LINK_SIZE; k += A::TEAM) {
    const int i = k / PADDED, j = k % PADDED;
    link[k] = given && i < row.n && j < row.n ? from.link[(at * TAPE + i) * TAPE + j] : 0.0f;
  }
  for (int i = row.thread; i < PADDED; i += A::TEAM) {
    const bool used = given && i < row.n;
    for (int h = 0; h < READ_HEADS; h++) vectors[reading_at(h) + i] = used ? from.read_weightings[(at * READ_HEADS + h) * TAPE + i] : 0.0f;
    vectors[WRITTEN + i] = used ? from.write_weighting[at * TAPE + i] : 0.0f;
    vectors[USAGE + i] = used ? from.usage[at * TAPE + i] : 0.0f;
    vectors[PRECEDENCE + i] = used ? from.precedence[at * TAPE + i] : 0.0f;
  }
}
// The inverse; beyond the row's slots everything is as in `old`, of which null stands for zeros.
template <class A>
__device__ __forceinline__ void store_slots(const Arguments& a, const Row<A>& row, const State& old, const State& to, const float* vectors) {
  const float *tape = row.tape(a), *link = row.link(a);
  const long long at = row.at;
  const bool given = old.memory != nullptr;
  for (int k = row.thread; k < TAPE * WIDTH; k += A::TEAM) {
    const int i = k / WIDTH, m = k % WIDTH;
    const long long place = at * TAPE * WIDTH + k;
    to.memory[place] = i < row.n ? tape[i * STRIDE + m] : given ? old.memory[place] : 0.0f;
  }
  for (int k = row.thread; k < TAPE * TAPE; k += A::TEAM) {
    const int i = k / TAPE, j = k % TAPE;
    const long long place = at * TAPE * TAPE + k;
    to.link[place] = i < row.n && j < row.n ? link[i * PADDED + j] : given ? old.link[place] : 0.0f;
  }
  for (int i = row.thread; i < TAPE; i += A::TEAM) {
    const bool used = i < row.n;
    for (int h = 0; h < READ_HEADS; h++) {
      const long long place = (at * READ_HEADS + h) * TAPE + i;
      to.read_weightings[place] = used ? vectors[reading_at(h) + i] : given ? old.read_weightings[place] : 0.0f;
    }
    const long long place = at * TAPE + i;
    to.write_weighting[place] = used ? vectors[WRITTEN + i] : given ? old.write_weighting[place] : 0.0f;
    to.usage[place] = used ? vectors[USAGE + i] : given ? old.usage[place] : 0.0f;
    to.precedence[place] = used ? vectors[PRECEDENCE + i] : given ? old.precedence[place] : 0.0f;
  }
}

// --- products with weights -----------------------------------------------------------------------------------------------

// y[o] = sum_k W[o, k] x[k] for all rows of the block: a thread has four outputs and one of SPLITS runs of DEPTH inputs. The
// weights of four outputs and one input stand together, so that a warp takes whole lines of them from the L2 cache. The first
// RESIDENT inputs of every run stay in shared memory.
template <int INNER_, int OUTER_, int SPLITS_, int DEPTH_>
struct Product {
  static constexpr int INNER = INNER_, OUTER = OUTER_, SPLITS = SPLITS_, DEPTH = DEPTH_;
  static constexpr int QUADS = (OUTER + 3) / 4, VECTORS = SPLITS * DEPTH * QUADS;  // VECTORS: float4 of the weights

  // Brings the weights that stay to their place in shared memory: there after `wait_for_copies` and a barrier.
  template <int RESIDENT>
  static __device__ __forceinline__ void load(const float4* packed, int resident) {
    float* shared = (float*)shared_memory;
    constexpr int EACH = RESIDENT * QUADS;  // of a run
    for (int at = threadIdx.x; at < SPLITS * EACH; at += THREADS)
      copy_four(shared + resident + 4 * at, (const float*)(packed + (long long)(at / EACH) * DEPTH * QUADS + at % EACH));
  }
  // x and the sums are places in a region. The sums of a row: [split][output].
  template <class A, int RESIDENT>
  static __device__ __forceinline__ void run(const float4* packed, int x, int sums, int resident) {
    float* shared = (float*)shared_memory;
    for (int item = threadIdx.x; item < QUADS * SPLITS; item += THREADS) {
      const int quad = item % QUADS, split = item / QUADS;
      const float4* w = packed + (long long)split * DEPTH * QUADS + quad;
      const float* from = shared + x + split * DEPTH;
      float4 sum[A::ROWS];
      UNROLL for (int r = 0; r < A::ROWS; r++) sum[r] = zeros();
      const auto multiply = [&](const float4(&four)[4], int k) {
        UNROLL for (int r = 0; r < A::ROWS; r++) {
          const float4 v = *(const float4*)(from + r * A::REGION + k);
          add(sum[r], four[0], v.x);
          add(sum[r], four[1], v.y);
          add(sum[r], four[2], v.z);
          add(sum[r], four[3], v.w);
        }
      };
      const float4* near = (const float4*)(shared + resident) + split * RESIDENT * QUADS + quad;
#pragma unroll 2
      for (int k = 0; k < RESIDENT; k += 4) {
        const float4 four[4] = {near[k * QUADS], near[(k + 1) * QUADS], near[(k + 2) * QUADS], near[(k + 3) * QUADS]};
        multiply(four, k);
      }
#pragma unroll 2
      for (int k = RESIDENT; k < DEPTH; k += 4) {
        const float4 four[4] = {__ldg(w + k * QUADS), __ldg(w + (k + 1) * QUADS), __ldg(w + (k + 2) * QUADS), __ldg(w + (k + 3) * QUADS)};
        multiply(four, k);
      }
      UNROLL for (int r = 0; r < A::ROWS; r++) *(float4*)(shared + r * A::REGION + sums + 4 * item) = sum[r];
    }
  }
  static __device__ __forceinline__ float total(const float* sums, int output) {
    float sum = 0;
    UNROLL for (int split = 0; split < SPLITS; split++) sum += sums[4 * QUADS * split + output];
    return sum;
  }
  // `weight(output, input)` is the address of a weight.
  template <class Weight>
  static __device__ __forceinline__ void pack(float4* packed, const Weight& weight) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < VECTORS; at += gridDim.x * blockDim.x) {
      const int o = 4 * (at % QUADS), k = at / QUADS;
      float4 w = zeros();
      if (k < INNER) {
        w.x = *weight(o, k);
        if (o + 1 < OUTER) w.y = *weight(o + 1, k);
        if (o + 2 < OUTER) w.z = *weight(o + 2, k);
        if (o + 3 < OUTER) w.w = *weight(o + 3, k);
      }
      packed[at] = w;
    }
  }
};
using First = Product<FIRST_COLUMNS + 1, GATES, PRODUCT_FIRST>;  // [inputs, reads, own hidden, 1] -> gates
using Upper = Product<UPPER_COLUMNS + 1, GATES, PRODUCT_UPPER>;  // [hidden below, own hidden, 1] -> gates
using Ask = Product<UNITS + 1, INTERFACE, PRODUCT_ASK>;          // [hidden, 1] -> interface
using FirstBack = Product<GATES, READS + OWN_UNITS, PRODUCT_FIRST_BACK>;
using UpperBack = Product<GATES, UPPER_COLUMNS, PRODUCT_UPPER_BACK>;
using AskBack = Product<INTERFACE, UNITS, PRODUCT_ASK_BACK>;
constexpr int PACKED_UPPER = First::VECTORS, PACKED_ASK = PACKED_UPPER + (LAYERS - 1) * Upper::VECTORS;
constexpr int PACKED_FIRST_BACK = PACKED_ASK + Ask::VECTORS, PACKED_UPPER_BACK = PACKED_FIRST_BACK + FirstBack::VECTORS;
constexpr int PACKED_ASK_BACK = PACKED_UPPER_BACK + (LAYERS - 1) * UpperBack::VECTORS, PACKED = PACKED_ASK_BACK + AskBack::VECTORS;

// Weights in the order in which the products take them. Grid: any, products, S.
extern "C" __global__ void __launch_bounds__(256) dnc_pack(const __grid_constant__ Arguments a) {
  const float* p = a.parameters + (long long)blockIdx.z * PARAMETERS;
  float4* packed = a.packed + (long long)blockIdx.z * PACKED;
  const int layer = blockIdx.y / 2, back = blockIdx.y % 2;
  if (layer == LAYERS) {
    if (back) AskBack::pack(packed + PACKED_ASK_BACK, [=](int o, int k) { return p + INTERFACE_WEIGHT + (long long)k * UNITS + o; });
    else Ask::pack(packed + PACKED_ASK, [=](int o, int k) { return p + (k < UNITS ? INTERFACE_WEIGHT + (long long)o * UNITS + k : INTERFACE_BIAS + o); });
  } else if (layer == 0) {
    const float *weight = p + weight_at(0), *bias = p + bias_at(0);
    if (back) FirstBack::pack(packed + PACKED_FIRST_BACK, [=](int o, int k) { return weight + (long long)k * FIRST_COLUMNS + INPUTS + o; });
    else First::pack(packed, [=](int o, int k) { return k < FIRST_COLUMNS ? weight + (long long)o * FIRST_COLUMNS + k : bias + o; });
  } else {
    const float *weight = p + weight_at(layer), *bias = p + bias_at(layer);
    float4* mine = packed + (back ? PACKED_UPPER_BACK + (layer - 1) * UpperBack::VECTORS : PACKED_UPPER + (layer - 1) * Upper::VECTORS);
    if (back) UpperBack::pack(mine, [=](int o, int k) { return weight + (long long)k * UPPER_COLUMNS + o; });
    else Upper::pack(mine, [=](int o, int k) { return k < UPPER_COLUMNS ? weight + (long long)o * UPPER_COLUMNS + k : bias + o; });
  }
}

// --- what both passes compute --------------------------------------------------------------------------------------------

// From the raw interface to keys of norm one, masks and scalars: a warp for each head.
template <class A>
__device__ __forceinline__ void activate(const Row<A>& row) {
  const int lane = row.lane;
  for (int head = row.warp; head < HEADS; head += A::WARPS) {
    const bool reads = head < READ_HEADS;
    const float* raw = row.own + A::RAW + head * READ_ENTRIES;
    const int mask_at = reads ? READ_MASK : WRITE_MASK;
    float *key = row.key(head), *focus = row.focus(head), *mask = row.mask(head), *scalars = row.scalars(head);
    float most = 1.0f, total = 0.0f;
    for (int m = lane; m < WIDTH; m += 32) {
      float k = raw[m];
      if (MASKED) k *= mask[m] = sigmoid(raw[mask_at + m]);
      most = fmaxf(most, fabsf(k));
    }
    most = most_of_warp(most);
    for (int m = lane; m < WIDTH; m += 32) {
      const float k = (MASKED ? raw[m] * mask[m] : raw[m]) / most;
      total += k * k;
    }
    const float inverse = 1.0f / (most * sqrtf(over_warp(total) + NORM_EPSILON));
    for (int m = lane; m < WIDTH; m += 32) {
      const float k = (MASKED ? raw[m] * mask[m] : raw[m]) * inverse;
      key[m] = k;
      if (MASKED) focus[m] = k * mask[m];
      if (!reads) {
        row.own[A::ERASE + m] = sigmoid(raw[WRITE_ERASE + m]);
        row.own[A::ADD + m] = raw[WRITE_ADD + m];
      }
    }
    if (lane == 0) scalars[STRENGTH] = (ONEPLUS ? 1.0f : 0.0f) + softplus(raw[reads ? READ_STRENGTH : WRITE_STRENGTH]);
    if (lane == 1) scalars[INVERSE] = inverse;
    if (lane == 2) scalars[FREE] = sigmoid(raw[reads ? READ_FREE_GATE : WRITE_ALLOCATION_GATE]);
    if (lane == 3 && !reads) scalars[WRITE_GATE] = sigmoid(raw[WRITE_WRITE_GATE]);
    if (lane == 3 && reads) {
      const float *x = raw + READ_MODES, top = fmaxf(x[0], fmaxf(x[1], x[2]));
      const float e[3] = {expf(x[0] - top), expf(x[1] - top), expf(x[2] - top)}, share = 1.0f / (e[0] + e[1] + e[2]);
      UNROLL for (int k = 0; k < 3; k++) scalars[MODES + k] = e[k] * share;
    }
    if (SHARP && reads && lane >= 4 && lane < 6) scalars[SHARPNESS + lane - 4] = 1.0f + softplus(raw[READ_SHARPNESS + lane - 4]);
  }
}

// 1 / sqrt(sum of squares + epsilon) of a slot's values, `value(m)`, by its lanes; scaled first where squares may overflow.
template <int LANES, class Value>
__device__ __forceinline__ float inverse_norm(int part, const Value& value) {
  float sum = 0;
  for_columns<LANES>(part, [&](int m) {
    const float x = value(m);
    sum += x * x;
  });
  sum = over_lanes<LANES>(sum);
  float inverse = 1.0f / sqrtf(sum + NORM_EPSILON);
  if (__any_sync(ALL, sum > NORM_LIMIT)) {
    float most = 1.0f, total = 0;
    for (int m = part; m < WIDTH; m += LANES) most = fmaxf(most, fabsf(value(m)));
    UNROLL for (int bit = LANES / 2; bit > 0; bit /= 2) most = fmaxf(most, from_lane(most, bit));
    for (int m = part; m < WIDTH; m += LANES) {
      const float x = value(m) / most;
      total += x * x;
    }
    total = over_lanes<LANES>(total);
    if (sum > NORM_LIMIT) inverse = 1.0f / (most * sqrtf(total + NORM_EPSILON));
  }
  return inverse;
}

// Its place in the order of usage is the number of slots before a slot: of equally used ones the first comes first.
__device__ __forceinline__ int place_of(const float* usage, int n, int i) {
  const float x = usage[i];
  int place = 0, j = 0;
#pragma unroll 4
  for (; j + 4 <= n; j += 4) {
    const float4 u = *(const float4*)(usage + j);
    place += (u.x < x || (u.x == x && j < i)) + (u.y < x || (u.y == x && j + 1 < i));
    place += (u.z < x || (u.z == x && j + 2 < i)) + (u.w < x || (u.w == x && j + 3 < i));
  }
  for (; j < n; j++) place += usage[j] < x || (usage[j] == x && j < i);
  return place;
}

// x[i] <- softmax(scale * from[i]) by one warp.
__device__ __forceinline__ void softmax(const float* from, float scale, float* x, int n, int lane) {
  float most = -3.402823466e38f, sum = 0;
  for (int i = lane; i < n; i += 32) most = fmaxf(most, scale * from[i]);
  most = most_of_warp(most);
  for (int i = lane; i < n; i += 32) sum += x[i] = expf(scale * from[i] - most);
  const float share = 1.0f / over_warp(sum);
  for (int i = lane; i < n; i += 32) x[i] *= share;
}

// A warp's lanes each have a run of places in the order of usage. The product of all usages before a lane's run.
__device__ __forceinline__ float product_before(float product, int lane) {
  UNROLL for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_sync(ALL, product, lane - step);
    if (lane >= step) product *= other;
  }
  const float before = __shfl_sync(ALL, product, lane - 1);
  return lane > 0 ? before : 1.0f;
}

// --- forward -------------------------------------------------------------------------------------------------------------

// Links of one step, L'(i, j) = (1 - w(i) - w(j)) L(i, j) + w(i) p(j) and zero where i = j, with their products with the
// weightings of COUNT read heads from FIRST on: L' v as sums over a row's lanes, L'^T v as sums over a thread's rows. A thread has four
// columns and every LINK_GROUPS-th row.
template <class A, int FIRST, int COUNT>
__device__ __forceinline__ void link_step(const Row<A>& row, float* link, float* kept) {
  const int column = row.thread % A::LINK_LANES, group = row.thread / A::LINK_LANES, j = 4 * column;
  const bool inside = j < row.n;
  const float* state = row.own + A::STATE;
  float4 columns[COUNT], v[COUNT], w = zeros(), p = zeros();
  UNROLL for (int h = 0; h < COUNT; h++) {
    columns[h] = zeros();
    v[h] = inside ? *(const float4*)(state + reading_at(FIRST + h) + j) : zeros();
  }
  if (FIRST == 0 && inside) {
    w = *(const float4*)(state + WRITTEN + j);
    p = *(const float4*)(state + PRECEDENCE + j);
  }
  float* row_sums = row.own + A::SCRATCH + A::ROW_SUMS + (column / 32 * READ_HEADS + FIRST) * PADDED;
  for (int first = 0; first < row.n; first += A::LINK_GROUPS) {
    const int i = first + group;
    const bool active = inside && i < row.n;
    float4 l = zeros();
    float sums[COUNT];
    if (active) {
      float4* at = (float4*)(link + i * PADDED + j);
      l = *at;
      if (FIRST == 0) {
        if (kept) *(float4*)(kept + i * PADDED + j) = l;
        const float to = state[WRITTEN + i], rest = 1.0f - to;
        l.x = (rest - w.x) * l.x + to * p.x;
        l.y = (rest - w.y) * l.y + to * p.y;
        l.z = (rest - w.z) * l.z + to * p.z;
        l.w = (rest - w.w) * l.w + to * p.w;
        clear_place(l, i - j);
        *at = l;
      }
      UNROLL for (int h = 0; h < COUNT; h++) add(columns[h], l, state[reading_at(FIRST + h) + i]);
    }
    UNROLL for (int h = 0; h < COUNT; h++) sums[h] = dot(l, v[h]);
    fold<COUNT, (A::LINK_LANES < 32 ? A::LINK_LANES : 32) / 2>(sums, row.lane, 0, COUNT, row_sums + i, i < row.n);
  }
  UNROLL for (int bit = A::LINK_LANES; bit < 32; bit *= 2) {
    UNROLL for (int h = 0; h < COUNT; h++) {
      columns[h].x += from_lane(columns[h].x, bit);
      columns[h].y += from_lane(columns[h].y, bit);
      columns[h].z += from_lane(columns[h].z, bit);
      columns[h].w += from_lane(columns[h].w, bit);
    }
  }
  if (inside && (A::LINK_LANES >= 32 || row.lane < A::LINK_LANES)) {
    float* to = row.own + A::SCRATCH + ((A::LINK_LANES >= 32 ? group : row.warp) * READ_HEADS + FIRST) * PADDED + j;
    UNROLL for (int h = 0; h < COUNT; h++) *(float4*)(to + h * PADDED) = columns[h];
  }
  if constexpr (FIRST + COUNT < READ_HEADS) {
    constexpr int NEXT = FIRST + COUNT, LEFT = READ_HEADS - NEXT;
    link_step<A, NEXT, (LEFT < HEADS_AT_ONCE ? LEFT : HEADS_AT_ONCE)>(row, link, nullptr);
  }
}

// Write, link, read. Leaves the reads at `reads`.
template <class A>
__device__ __forceinline__ void memory_step(const Arguments& a, const Row<A>& row, const Kept& kept, int t, float* reads) {
  float *own = row.own, *state = own + A::STATE, *vectors = own + A::VECTORS, *tape = row.tape(a), *link = row.link(a);
  const int n = row.n, slot = row.thread / A::LANES, part = row.thread % A::LANES;
  for (int e = row.thread; e < INTERFACE_PADDED; e += A::TEAM) {
    const float raw = e < INTERFACE ? Ask::total(own + A::SCRATCH, e) : 0.0f;
    own[A::RAW + e] = raw;
    if (a.keep) kept.raw(t)[e] = raw;
  }
  row.sync();  // the raw interface
  activate(row);
  row.sync();  // what the heads ask for

  // Retention, usage and the write head's similarities.
  for (int first = 0; first < n; first += A::TEAM / A::LANES) {
    const int i = first + slot, there = min(i, n - 1);
    const float *x = tape + there * STRIDE, *mask = row.mask(READ_HEADS), *focus = row.focus(READ_HEADS);
    if (part == 0 && i < n) {
      float psi = 1.0f;
      for (int h = 0; h < READ_HEADS; h++) psi *= 1.0f - row.scalars(h)[FREE] * state[reading_at(h) + i];
      const float u = state[USAGE + i], w = state[WRITTEN + i];
      own[A::PSI + i] = psi;
      state[USAGE + i] = (u + w - u * w) * psi;
      ((int*)(vectors + ORDER))[i] = i;  // a NaN has no place, but whatever stands here is used as an index
    }
    const float inverse = inverse_norm<A::LANES>(part, [&](int m) { return MASKED ? mask[m] * x[m] : x[m]; });
    float sum = 0;
    for_columns<A::LANES>(part, [&](int m) { sum += focus[m] * (x[m] * inverse); });
    sum = over_lanes<A::LANES>(sum);
    if (part == 0 && i < n) vectors[similarity_at(READ_HEADS) + i] = sum;
  }
  row.sync();  // usage, similarities

  if (row.warp == 0) {
    softmax(vectors + similarity_at(READ_HEADS), row.scalars(READ_HEADS)[STRENGTH], vectors + content_at(READ_HEADS), n, row.lane);
  } else {
    for (int i = row.thread - 32; i < n; i += A::TEAM - 32) {
      const float x = state[USAGE + i];
      const int place = place_of(state + USAGE, n, i);
      if (x == x) ((int*)(vectors + ORDER))[place] = i;
    }
  }
  row.sync();  // content, order

  if (row.warp == 0) {
    const float g_a = row.scalars(READ_HEADS)[ALLOCATION_GATE], g_w = row.scalars(READ_HEADS)[WRITE_GATE];
    const float *usage = state + USAGE, *content = vectors + content_at(READ_HEADS);
    const int* order = (const int*)(vectors + ORDER);
    const int run = (n + 31) / 32, begin = min(n, run * row.lane), end = min(n, begin + run);
    float product = 1.0f, total = 0.0f;
    bool bad = false;
    for (int j = begin; j < end; j++) {
      product *= usage[order[j]];
      bad = bad || usage[j] != usage[j];
    }
    product = product_before(product, row.lane);
    bad = __any_sync(ALL, bad);
    for (int j = begin; j < end; j++) {
      const int i = bad ? j : order[j];  // one slot has no place then
      const float u = usage[i], allocation = bad ? __int_as_float(0x7fffffff) : (1.0f - u) * product;
      const float w = g_w * (g_a * allocation + (1.0f - g_a) * content[i]);
      product *= u;
      vectors[ALLOCATION + i] = allocation;
      state[WRITTEN + i] = w;
      total += w;
    }
    total = over_warp(total);
    if (row.lane == 0) own[A::TOTAL] = total;
  }
  row.sync();  // the write weighting

  // Erase, add, and the read heads' similarities; links.
  for (int first = 0; first < n; first += A::TEAM / A::LANES) {
    const int i = first + slot, there = min(i, n - 1);
    float* x = tape + there * STRIDE;
    if (i < n) {
      const float w = state[WRITTEN + i], psi = own[A::PSI + i];
      for_columns<A::LANES>(part, [&](int m) {
        const float old = DEALLOCATION ? psi * x[m] : x[m];
        x[m] = old * (1.0f - w * own[A::ERASE + m]) + w * own[A::ADD + m];
      });
    }
    const bool mine = part == 0 && i < n;
    if (i >= n) x = own + A::KEYS;  // any numbers that nobody writes now
    if (!MASKED) {
      const float inverse = inverse_norm<A::LANES>(part, [&](int m) { return x[m]; });
      float sums[READ_HEADS];
      UNROLL for (int h = 0; h < READ_HEADS; h++) sums[h] = 0.0f;
      for_columns<A::LANES>(part, [&](int m) {
        const float y = x[m] * inverse;
        UNROLL for (int h = 0; h < READ_HEADS; h++) sums[h] += row.focus(h)[m] * y;
      });
      UNROLL for (int h = 0; h < READ_HEADS; h++) sums[h] = over_lanes<A::LANES>(sums[h]);
      if (mine) UNROLL for (int h = 0; h < READ_HEADS; h++) vectors[similarity_at(h) + i] = sums[h];
    } else {
      for (int h = 0; h < READ_HEADS; h++) {
        const float *mask = row.mask(h), *focus = row.focus(h);
        const float inverse = inverse_norm<A::LANES>(part, [&](int m) { return mask[m] * x[m]; });
        float sum = 0;
        for_columns<A::LANES>(part, [&](int m) { sum += focus[m] * (x[m] * inverse); });
        sum = over_lanes<A::LANES>(sum);
        if (mine) vectors[similarity_at(h) + i] = sum;
      }
    }
  }
  link_step<A, 0, (READ_HEADS < HEADS_AT_ONCE ? READ_HEADS : HEADS_AT_ONCE)>(row, link, a.keep && t % SEGMENT == 0 ? kept.link(t / SEGMENT) : nullptr);
  row.sync();  // the memory, similarities, sums of the links

  for (int h = row.warp; h < READ_HEADS; h += A::WARPS) {
    const float *scalars = row.scalars(h), *sums = own + A::SCRATCH;
    float *content = vectors + content_at(h), *forward = vectors + forward_at(h), *backward = vectors + backward_at(h);
    float *raw_forward = vectors + raw_forward_at(h), *raw_backward = vectors + raw_backward_at(h);
    for (int i = row.lane; i < n; i += 32) {
      float f = 0, b = 0;
      for (int k = 0; k < A::ROW_PARTS; k++) f += sums[A::ROW_SUMS + (k * READ_HEADS + h) * PADDED + i];
      for (int k = 0; k < A::COLUMN_PARTS; k++) b += sums[(k * READ_HEADS + h) * PADDED + i];
      raw_forward[i] = f;
      raw_backward[i] = b;
      if (SHARP) {
        forward[i] = logf(f + LINK_EPSILON);
        backward[i] = logf(b + LINK_EPSILON);
      }
    }
    if (SHARP) {  // a lane reads and writes its own slots
      softmax(forward, scalars[SHARPNESS], forward, n, row.lane);
      softmax(backward, scalars[SHARPNESS + 1], backward, n, row.lane);
    }
    softmax(vectors + similarity_at(h), scalars[STRENGTH], content, n, row.lane);
    for (int i = row.lane; i < n; i += 32)
      state[reading_at(h) + i] = scalars[MODES] * backward[i] + scalars[MODES + 1] * content[i] + scalars[MODES + 2] * forward[i];
  }
  const float rest = 1.0f - own[A::TOTAL];
  for (int i = row.thread; i < n; i += A::TEAM) state[PRECEDENCE + i] = rest * state[PRECEDENCE + i] + state[WRITTEN + i];
  row.sync();  // read weightings, precedence

  for (int k = row.thread; k < READS; k += A::TEAM) {
    const float *w = state + reading_at(k / WIDTH), *x = tape + k % WIDTH;
    float sums[4] = {0, 0, 0, 0};
    int i = 0;
#pragma unroll 2
    for (; i + 4 <= n; i += 4) {
      const float4 v = *(const float4*)(w + i);
      sums[0] += v.x * x[i * STRIDE];
      sums[1] += v.y * x[(i + 1) * STRIDE];
      sums[2] += v.z * x[(i + 2) * STRIDE];
      sums[3] += v.w * x[(i + 3) * STRIDE];
    }
    for (; i < n; i++) sums[0] += w[i] * x[i * STRIDE];
    reads[k] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    kept.seen(t)[UNITS + k] = reads[k];
  }
  if (a.keep) {
    keep_floats(row, vectors, kept.vectors(t), VECTORS_SIZE);
    keep_floats(row, state, kept.states(t + 1), STATE_SIZE);
    if (t + 1 < a.steps) keep_floats(row, tape, kept.tape(t + 1), TAPE_SIZE);
  }
}

// From the gates of a layer to its hidden values.
template <class A, class P>
__device__ __forceinline__ void layer_output(const Arguments& a, const Row<A>& row, const Kept& kept, int t, int layer, float* x, int below) {
  float *own = row.own, *above = layer + 1 < LAYERS ? own + A::X_UPPER + layer * UPPER_INPUTS : own + A::X_ASK;
  const float* sums = own + A::SCRATCH;
  for (int unit = row.thread; unit < UNITS; unit += A::TEAM) {
    float hidden;
    if (LSTM) {
      const float i = sigmoid(P::total(sums, unit)), f = sigmoid(P::total(sums, UNITS + unit));
      const float g = tanhf(P::total(sums, 2 * UNITS + unit)), o = sigmoid(P::total(sums, 3 * UNITS + unit));
      const float cell = f * own[A::CELL + layer * UNITS + unit] + i * g;
      hidden = o * tanhf(cell);
      own[A::CELL + layer * UNITS + unit] = cell;
      if (a.keep) {
        float* gates = kept.gates(t, layer) + unit;
        gates[0] = i;
        gates[UNITS] = f;
        gates[2 * UNITS] = g;
        gates[3 * UNITS] = o;
        kept.cells(t + 1, layer)[unit] = cell;
        kept.below(t, layer)[below + unit] = x[below + unit];
      }
      x[below + unit] = hidden;  // for the next step
    } else {
      hidden = tanhf(P::total(sums, unit));
      if (a.keep) kept.gates(t, layer)[unit] = hidden;
    }
    above[unit] = hidden;
    if (layer + 1 == LAYERS) kept.seen(t)[unit] = hidden;
    else if (a.keep) kept.below(t, layer + 1)[unit] = hidden;
  }
}

// The inputs of step t, on their way.
template <class A>
__device__ __forceinline__ void fetch_inputs(const Arguments& a, const Row<A>& row, int t, float* x) {
  if (t >= row.length) return;
  const float* from = a.inputs + (((long long)row.seed * a.steps + t) * a.batch + row.b) * INPUTS;
  for (int k = row.thread; k < INPUTS; k += A::TEAM) copy_or_zero(x + k, from + k, true);
}

// Grid: blocks of a seed's sequences, S.
extern "C" __global__ void __launch_bounds__(THREADS, 1) dnc_forward(const __grid_constant__ Arguments a) {
  using A = Forward;
  const Row<A> row(a);
  const Kept kept(a, row.at);
  const int longest = row.longest(a);
  const float4* packed = a.packed + (long long)row.seed * PACKED;
  float *own = row.own, *first_x = own + A::X_FIRST, *state = own + A::STATE;
  clear_region(row);
  row.sync();
  load_slots(a, row, a.initial, state);
  if (a.initial.memory && row.there) {
    for (int k = row.thread; k < READS; k += A::TEAM) first_x[INPUTS + k] = a.initial.reads[row.at * READS + k];
    if (LSTM) {
      for (int k = row.thread; k < LAYERS * UNITS; k += A::TEAM) {
        const int layer = k / UNITS, unit = k % UNITS;
        float* x = layer == 0 ? first_x + FIRST_BELOW : own + A::X_UPPER + (layer - 1) * UPPER_INPUTS + UNITS;
        x[unit] = a.initial.hidden[row.at * LAYERS * UNITS + k];
        own[A::CELL + k] = a.initial.cell[row.at * LAYERS * UNITS + k];
      }
    }
  }
  if (row.thread == 0) {  // inputs of the biases
    first_x[FIRST_COLUMNS] = own[A::X_ASK + UNITS] = 1.0f;
    for (int layer = 1; layer < LAYERS; layer++) own[A::X_UPPER + (layer - 1) * UPPER_INPUTS + UPPER_COLUMNS] = 1.0f;
  }
  row.sync();
  if (a.keep && row.length > 0) {
    keep_floats(row, state, kept.states(0), STATE_SIZE);
    keep_floats(row, row.tape(a), kept.tape(0), TAPE_SIZE);
    if (LSTM) for (int k = row.thread; k < LAYERS * UNITS; k += A::TEAM) kept.cells(0, k / UNITS)[k % UNITS] = own[A::CELL + k];
  }
  fetch_inputs(a, row, 0, first_x);
  if (longest > 0) {
    First::load<A::RESIDENT_FIRST>(packed, A::WEIGHTS_FIRST);
    Ask::load<A::RESIDENT_ASK>(packed + PACKED_ASK, A::WEIGHTS_ASK);
  }
  for (int t = 0; t < longest; t++) {
    const bool active = t < row.length;
    wait_for_copies();
    __syncthreads();  // inputs and reads
    if (active && a.keep) for (int k = row.thread; k < FIRST_BELOW; k += A::TEAM) kept.below(t, 0)[k] = first_x[k];
    First::run<A, A::RESIDENT_FIRST>(packed, A::X_FIRST, A::SCRATCH, A::WEIGHTS_FIRST);
    __syncthreads();  // sums of the gates; the inputs have been read
    fetch_inputs(a, row, t + 1, first_x);
    if (active) layer_output<A, First>(a, row, kept, t, 0, first_x, FIRST_BELOW);
    for (int layer = 1; layer < LAYERS; layer++) {
      __syncthreads();  // hidden values of the layer below; sums read
      const int at = A::X_UPPER + (layer - 1) * UPPER_INPUTS;
      Upper::run<A, 0>(packed + PACKED_UPPER + (layer - 1) * Upper::VECTORS, at, A::SCRATCH, 0);
      __syncthreads();  // sums of the gates
      if (active) layer_output<A, Upper>(a, row, kept, t, layer, own + at, UNITS);
    }
    __syncthreads();  // hidden values of the last layer; sums read
    Ask::run<A, A::RESIDENT_ASK>(packed + PACKED_ASK, A::X_ASK, A::SCRATCH, A::WEIGHTS_ASK);
    __syncthreads();  // sums of the interface
    if (active) memory_step(a, row, kept, t, first_x + INPUTS);
  }
  row.sync();
  if (!row.there || !a.final.memory) return;
  store_slots(a, row, a.initial, a.final, state);
  for (int k = row.thread; k < READS; k += A::TEAM) a.final.reads[row.at * READS + k] = first_x[INPUTS + k];
  if (LSTM) {
    for (int k = row.thread; k < LAYERS * UNITS; k += A::TEAM) {
      const int layer = k / UNITS, unit = k % UNITS;
      const float* x = layer == 0 ? first_x + FIRST_BELOW : own + A::X_UPPER + (layer - 1) * UPPER_INPUTS + UNITS;
      a.final.hidden[row.at * LAYERS * UNITS + k] = x[unit];
      a.final.cell[row.at * LAYERS * UNITS + k] = own[A::CELL + k];
    }
  }
}

// --- output layer and loss -----------------------------------------------------------------------------------------------

// A block for a sequence, a warp for a step at a time. What is computed follows from what is asked for: `outputs` or `targets`
// the logits, `d_seen` the gradient. Grid: S B.
extern "C" __global__ void __launch_bounds__(OUTPUT_THREADS) dnc_outputs(const __grid_constant__ Arguments a) {
  constexpr int WARPS = OUTPUT_THREADS / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long at = blockIdx.x, seed = at / a.batch, b = at % a.batch;
  const int length = min(max((int)a.lengths[at], 0), a.steps);
  const Kept kept(a, at);
  const float* parameters = a.parameters + seed * PARAMETERS;
  float cost = 0;
  for (int t = warp; t < a.steps; t += WARPS) {
    const bool inside = t < length;
    const long long step = (seed * a.steps + t) * a.batch + b;
    const float* seen = kept.seen(t);
    if (a.outputs || a.targets) {
      float* logits = (a.targets ? a.d_outputs : a.outputs) + step * OUTPUTS;
      for (int o = 0; o < OUTPUTS; o++) {
        float sum = 0;
        if (inside) {
          const float* weight = parameters + OUTPUT_WEIGHT + (long long)o * SUMMARY;
          for (int k = lane; k < SUMMARY; k += 32) sum += seen[k] * __ldg(weight + k);
        }
        sum = over_warp(sum);
        if (lane == o % 32) logits[o] = inside ? sum + parameters[OUTPUT_BIAS + o] : 0.0f;
      }
      __syncwarp();  // logits
      if (a.targets) {
        const float* targets = a.targets + step * OUTPUTS;
        const bool scored = a.mask[step] != 0.0f;
        const float share = scored && inside ? 1.0f / a.batch : 0.0f;
        if (!scored) {
          for (int o = lane; o < OUTPUTS; o += 32) logits[o] = 0.0f;
        } else if (a.loss == BINARY) {
          for (int o = lane; o < OUTPUTS; o += 32) {
            const float x = logits[o], y = targets[o];
            cost += fmaxf(x, 0.0f) - x * y + log1pf(expf(-fabsf(x)));
            logits[o] = inside ? (sigmoid(x) - y) * share : 0.0f;
          }
        } else {
          float most = -3.402823466e38f, sum = 0, weight = 0;
          for (int o = lane; o < OUTPUTS; o += 32) most = fmaxf(most, logits[o]);
          most = most_of_warp(most);
          for (int o = lane; o < OUTPUTS; o += 32) {
            sum += expf(logits[o] - most);
            weight += targets[o];
          }
          weight = over_warp(weight);
          const float log_sum = most + logf(over_warp(sum));
          for (int o = lane; o < OUTPUTS; o += 32) {
            const float x = logits[o], y = targets[o];
            cost += y * (log_sum - x);
            logits[o] = inside ? (weight * expf(x - log_sum) - y) * share : 0.0f;
          }
        }
        __syncwarp();  // gradients of the logits
      }
    }
    if (a.d_seen && inside) {
      const float* d_logits = a.d_outputs + step * OUTPUTS;
      float* d_seen = a.d_seen + (at * a.steps + t) * SUMMARY_PADDED;
      for (int k = lane; k < SUMMARY_PADDED; k += 32) {
        float sum = 0;
        if (k < SUMMARY)
          for (int o = 0; o < OUTPUTS; o++) sum += d_logits[o] * __ldg(parameters + OUTPUT_WEIGHT + (long long)o * SUMMARY + k);
        d_seen[k] = sum;
      }
    }
  }
  if (!a.targets) return;
  float* costs = (float*)shared_memory;
  cost = over_warp(cost);
  if (lane == 0) costs[warp] = cost;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float sum = 0;
  for (int w = 0; w < WARPS; w++) sum += costs[w];
  a.costs[at] = sum;
}

// --- backward ------------------------------------------------------------------------------------------------------------

// Gradients of what a head asks for, where they are sums over slots or known before: scalars of a head, then of the write head.
enum SlotSums { D_STRENGTH, ALONG, D_FREE, D_MODES, D_SHARPNESS = 6, D_ALLOCATION_GATE = 2, D_WRITE_GATE = 3 };

// What the forward pass kept of step t, on its way into shared memory. `states` has two places, for even and odd steps, and that of
// step t + 1 is there but for the last step of a sequence.
template <class A>
__device__ __forceinline__ void fetch_step(const Arguments& a, const Row<A>& row, const Kept& kept, int t) {
  if (t < 0 || t >= row.length) return;
  float* own = row.own;
  fetch(row, kept.states(t), own + A::STATE + (t & 1) * STATE_SIZE, STATE_SIZE);
  if (t == row.length - 1) fetch(row, kept.states(t + 1), own + A::STATE + (~t & 1) * STATE_SIZE, STATE_SIZE);
  fetch(row, kept.vectors(t), own + A::VECTORS, VECTORS_SIZE);
  fetch(row, kept.raw(t), own + A::RAW, INTERFACE_PADDED);
  fetch(row, a.d_seen + (row.at * a.steps + t) * SUMMARY_PADDED, own + A::D_SEEN, SUMMARY_PADDED);
  if constexpr (A::TAPE_SHARED) fetch(row, kept.tape(t), own + A::TAPE_BEFORE, TAPE_SIZE);
  for (int s = t - t % SEGMENT, k = 0; s < t; s++, k++) {  // to replay the links since one was kept
    fetch(row, kept.states(s + 1) + WRITTEN, own + A::REPLAY + 2 * k * PADDED, PADDED);
    fetch(row, kept.states(s) + PRECEDENCE, own + A::REPLAY + (2 * k + 1) * PADDED, PADDED);
  }
}

// Backward of links and of their products with the weightings v before the step, for COUNT read heads from FIRST on; the last
// of them take the step itself back. d_f, d_b: gradients of the products. With g the gradient of a new link,
//   g += sum_h d_f_h(i) v_h(j) + v_h(i) d_b_h(j),     d_v_h(j) += L'(i, j) d_f_h(i),     d_v_h(i) += L'(i, j) d_b_h(j),
//   d_w(i) += g (p(j) - L(i, j)),     d_w(j) -= g L(i, j),     d_p(j) += w(i) g,     d_L(i, j) = g (1 - w(i) - w(j)).
// The link before the step is replayed from the one kept at the beginning of its segment, `replays` steps ago.
template <class A, int FIRST, int COUNT>
__device__ __forceinline__ void link_step_back(const Row<A>& row, const float* kept, float* d_link, const float* before, const float* written, int replays) {
  constexpr bool LAST = FIRST + COUNT == READ_HEADS;
  constexpr int OF_ROW = COUNT + (LAST ? 1 : 0), OF_COLUMN = COUNT + (LAST ? 2 : 0);  // sums
  const int column = row.thread % A::LINK_LANES, group = row.thread / A::LINK_LANES, j = 4 * column;
  const bool inside = j < row.n;
  const float *vectors = row.own + A::VECTORS, *replay = row.own + A::REPLAY;
  float4 columns[OF_COLUMN], v[COUNT], d_b[COUNT], w = zeros(), p = zeros();
  UNROLL for (int h = 0; h < OF_COLUMN; h++) columns[h] = zeros();
  UNROLL for (int h = 0; h < COUNT; h++) {
    v[h] = inside ? *(const float4*)(before + reading_at(FIRST + h) + j) : zeros();
    d_b[h] = inside ? *(const float4*)(vectors + backward_at(FIRST + h) + j) : zeros();
  }
  if (inside) {
    w = *(const float4*)(written + j);
    p = *(const float4*)(before + PRECEDENCE + j);
  }
  float* row_sums = row.own + A::SCRATCH + A::ROW_SUMS + (column / 32 * (READ_HEADS + 1) + FIRST) * PADDED;
  float4 next = inside && group < row.n ? *(const float4*)(kept + group * PADDED + j) : zeros();  // a row ahead of its use
  for (int first = 0; first < row.n; first += A::LINK_GROUPS) {
    const int i = first + group;
    const bool active = inside && i < row.n;
    float sums[OF_ROW];
    UNROLL for (int h = 0; h < OF_ROW; h++) sums[h] = 0.0f;
    float4 old = next;
    if (inside && i + A::LINK_GROUPS < row.n) next = *(const float4*)(kept + (i + A::LINK_GROUPS) * PADDED + j);
    if (active) {
      for (int k = 0; k < replays; k++) {
        const float *w_k = replay + 2 * k * PADDED, *p_k = w_k + PADDED;
        const float4 since = *(const float4*)(w_k + j), preceding = *(const float4*)(p_k + j);
        const float to = w_k[i], rest = 1.0f - to;
        old.x = (rest - since.x) * old.x + to * preceding.x;
        old.y = (rest - since.y) * old.y + to * preceding.y;
        old.z = (rest - since.z) * old.z + to * preceding.z;
        old.w = (rest - since.w) * old.w + to * preceding.w;
        clear_place(old, i - j);
      }
      const float to = written[i], rest = 1.0f - to;
      float4 l, factor = make_float4(rest - w.x, rest - w.y, rest - w.z, rest - w.w);
      l.x = factor.x * old.x + to * p.x;
      l.y = factor.y * old.y + to * p.y;
      l.z = factor.z * old.z + to * p.z;
      l.w = factor.w * old.w + to * p.w;
      clear_place(l, i - j);
      float4* at = (float4*)(d_link + i * PADDED + j);
      float4 g = *at;
      UNROLL for (int h = 0; h < COUNT; h++) {
        const float d_f = vectors[forward_at(FIRST + h) + i], v_i = before[reading_at(FIRST + h) + i];
        add(g, v[h], d_f);
        add(g, d_b[h], v_i);
        add(columns[h], l, d_f);
        sums[h] = dot(l, d_b[h]);
      }
      if (LAST) {
        clear_place(g, i - j);
        const float4 z = make_float4(g.x * old.x, g.y * old.y, g.z * old.z, g.w * old.w);
        sums[OF_ROW - 1] = dot(g, p) - ((z.x + z.y) + (z.z + z.w));
        add(columns[OF_COLUMN - 2], z, -1.0f);
        add(columns[OF_COLUMN - 1], g, to);
        g = make_float4(g.x * factor.x, g.y * factor.y, g.z * factor.z, g.w * factor.w);
      }
      *at = g;
    }
    fold<OF_ROW, (A::LINK_LANES < 32 ? A::LINK_LANES : 32) / 2>(sums, row.lane, 0, OF_ROW, row_sums + i, i < row.n);
  }
  UNROLL for (int bit = A::LINK_LANES; bit < 32; bit *= 2) {
    UNROLL for (int h = 0; h < OF_COLUMN; h++) {
      columns[h].x += from_lane(columns[h].x, bit);
      columns[h].y += from_lane(columns[h].y, bit);
      columns[h].z += from_lane(columns[h].z, bit);
      columns[h].w += from_lane(columns[h].w, bit);
    }
  }
  if (inside && (A::LINK_LANES >= 32 || row.lane < A::LINK_LANES)) {
    float* to = row.own + A::SCRATCH + ((A::LINK_LANES >= 32 ? group : row.warp) * (READ_HEADS + 2) + FIRST) * PADDED + j;
    UNROLL for (int h = 0; h < OF_COLUMN; h++) *(float4*)(to + h * PADDED) = columns[h];
  }
  if constexpr (!LAST) {
    constexpr int NEXT = FIRST + COUNT, LEFT = READ_HEADS - NEXT;
    link_step_back<A, NEXT, (LEFT < HEADS_AT_ONCE ? LEFT : HEADS_AT_ONCE)>(row, kept, d_link, before, written, replays);
  }
}

// Slots of one entry have cosines of +-1, and the two terms of the slope of a cosine cancel except for what epsilon has of the
// squared norm. Their difference would be the rounding of either, over the norm.
constexpr bool ONE_ENTRY = WIDTH == 1;
__device__ __forceinline__ float share_of_epsilon(float inverse_norm) { return NORM_EPSILON * inverse_norm * inverse_norm; }

// Backward of a softmax of strength x similarity, whose gradient is share x d(i). Leaves alpha and delta, the gradients by what is
// multiplied with the focus and, with the slot itself, with its content, where content and similarities were. With slots of one
// entry, delta is all of the slope, and is multiplied with the focus.
template <class Gradient>
__device__ __forceinline__ void address_back(float* content, float* similarity, const float* norms, float strength, float mean, float mean_similarity, float* sums, int n, int lane, const Gradient& gradient) {
  float d_strength = 0, along = 0;
  for (int i = lane; i < n; i += 32) {
    const float c = content[i], s = similarity[i], d_z = c * (gradient(i) - mean), d_k = strength * d_z, alpha = d_k * norms[i];
    d_strength += d_z * (s - mean_similarity);
    along += d_k * s;
    content[i] = alpha;
    similarity[i] = ONE_ENTRY ? alpha * share_of_epsilon(norms[i]) : -alpha * s * norms[i];
  }
  d_strength = over_warp(d_strength);
  along = over_warp(along);
  if (lane == 0) {
    sums[D_STRENGTH] = d_strength;
    sums[ALONG] = along;
  }
}

template <class A>
__device__ __forceinline__ void read_head_back(const Row<A>& row, int h) {
  float *own = row.own, *vectors = own + A::VECTORS, *sums = own + A::D_SCALARS + 8 * h;
  const float *scalars = row.scalars(h), *d = own + A::D_STATE + reading_at(h), *norms = own + A::NORMS + (MASKED ? h : 0) * PADDED;
  float *content = vectors + content_at(h), *similarity = vectors + similarity_at(h), *forward = vectors + forward_at(h), *backward = vectors + backward_at(h);
  const float *raw_forward = vectors + raw_forward_at(h), *raw_backward = vectors + raw_backward_at(h);
  const int n = row.n, lane = row.lane;
  float d_modes[3] = {0, 0, 0}, mean_similarity = 0, mean_logs[2] = {0, 0};
  for (int i = lane; i < n; i += 32) {
    d_modes[0] += d[i] * backward[i];
    d_modes[1] += d[i] * content[i];
    d_modes[2] += d[i] * forward[i];
    mean_similarity += content[i] * similarity[i];
    if (SHARP) {
      mean_logs[0] += forward[i] * logf(raw_forward[i] + LINK_EPSILON);
      mean_logs[1] += backward[i] * logf(raw_backward[i] + LINK_EPSILON);
    }
  }
  UNROLL for (int k = 0; k < 3; k++) d_modes[k] = over_warp(d_modes[k]);
  mean_similarity = over_warp(mean_similarity);
  const float by_backward = scalars[MODES], by_content = scalars[MODES + 1], by_forward = scalars[MODES + 2];
  address_back(content, similarity, norms, scalars[STRENGTH], by_content * d_modes[1], mean_similarity, sums, n, lane, [&](int i) { return by_content * d[i]; });
  if (SHARP) {
    UNROLL for (int k = 0; k < 2; k++) mean_logs[k] = over_warp(mean_logs[k]);
    float d_sharpness[2] = {0, 0};
    const float means[2] = {by_forward * d_modes[2], by_backward * d_modes[0]};
    for (int i = lane; i < n; i += 32) {
      const float x = raw_forward[i] + LINK_EPSILON, y = raw_backward[i] + LINK_EPSILON;
      const float d_x = forward[i] * (by_forward * d[i] - means[0]), d_y = backward[i] * (by_backward * d[i] - means[1]);
      d_sharpness[0] += d_x * (logf(x) - mean_logs[0]);
      d_sharpness[1] += d_y * (logf(y) - mean_logs[1]);
      forward[i] = scalars[SHARPNESS] * d_x / x;
      backward[i] = scalars[SHARPNESS + 1] * d_y / y;
    }
    UNROLL for (int k = 0; k < 2; k++) {
      d_sharpness[k] = over_warp(d_sharpness[k]);
      if (lane == 0) sums[D_SHARPNESS + k] = d_sharpness[k];
    }
  } else {
    for (int i = lane; i < n; i += 32) {
      forward[i] = by_forward * d[i];
      backward[i] = by_backward * d[i];
    }
  }
  if (lane < 3) sums[D_MODES + lane] = lane == 0 ? d_modes[0] : lane == 1 ? d_modes[1] : d_modes[2];
}

// Of the write weighting between allocation and content, and of the content; by one warp.
template <class A>
__device__ __forceinline__ void write_head_back(const Row<A>& row) {
  float *own = row.own, *vectors = own + A::VECTORS, *sums = own + A::D_SCALARS + 8 * READ_HEADS;
  const float *scalars = row.scalars(READ_HEADS), *d = own + A::D_STATE + WRITTEN, *allocation = vectors + ALLOCATION;
  float *content = vectors + content_at(READ_HEADS), *similarity = vectors + similarity_at(READ_HEADS);
  const float g_a = scalars[ALLOCATION_GATE], g_w = scalars[WRITE_GATE], by_content = g_w * (1.0f - g_a);
  float along_allocation = 0, along_content = 0, mean_similarity = 0;
  for (int i = row.lane; i < row.n; i += 32) {
    along_allocation += d[i] * allocation[i];
    along_content += d[i] * content[i];
    mean_similarity += content[i] * similarity[i];
  }
  along_allocation = over_warp(along_allocation);
  along_content = over_warp(along_content);
  mean_similarity = over_warp(mean_similarity);
  if (row.lane == 0) {
    sums[D_ALLOCATION_GATE] = g_w * (along_allocation - along_content);
    sums[D_WRITE_GATE] = g_a * (along_allocation - along_content) + along_content;
  }
  const float* norms = own + A::NORMS + (MASKED ? READ_HEADS : 1) * PADDED;
  address_back(content, similarity, norms, scalars[STRENGTH], by_content * along_content, mean_similarity, sums, row.n, row.lane, [&](int i) { return by_content * d[i]; });
}

// Of the allocation, by one warp: d_s_j = P_j (Q_j - d_a_j), where Q_j, the share of all later places, is d_a_{j+1} (1 - s_{j+1}) +
// s_{j+1} Q_{j+1}, from the end. A lane's run of places maps the Q behind it to the Q before it: Q -> factor Q + rest.
template <class A>
__device__ __forceinline__ void allocation_back(const Row<A>& row, const float* usage) {
  const float *own = row.own, *d = own + A::D_STATE + WRITTEN, *scalars = row.scalars(READ_HEADS);
  float* d_usage = row.own + A::D_STATE + USAGE;
  const int* order = (const int*)(own + A::VECTORS + ORDER);
  const float share = scalars[WRITE_GATE] * scalars[ALLOCATION_GATE];
  const int n = row.n, lane = row.lane, run = (n + 31) / 32, begin = min(n, run * lane), end = min(n, begin + run);
  float factor = 1.0f, rest = 0.0f;
  for (int j = end - 1; j >= begin; j--) {
    const float u = usage[order[j]];
    rest = share * d[order[j]] * (1.0f - u) + u * rest;
    factor *= u;
  }
  float product = product_before(factor, lane);
  UNROLL for (int step = 1; step < 32; step *= 2) {  // with the runs of the lanes behind it
    const float other_factor = __shfl_sync(ALL, factor, lane + step), other_rest = __shfl_sync(ALL, rest, lane + step);
    if (lane + step < 32) {
      rest += factor * other_rest;
      factor *= other_factor;
    }
  }
  const float behind = __shfl_sync(ALL, rest, lane + 1);
  float later = lane < 31 ? behind : 0.0f;
  // Products of the places of a run from its end need those before it: usages may be zero, so nothing is divided.
  for (int j = end - 1; j >= begin; j--) {
    const int i = order[j];
    const float u = usage[i], d_a = share * d[i];
    float before = product;
    for (int k = begin; k < j; k++) before *= usage[order[k]];
    d_usage[i] += before * (later - d_a);
    later = d_a * (1.0f - u) + u * later;
  }
}

// Backward of `memory_step`, from gradients of the state after step t to those of the state before it, and of the interface. The
// links' checkpoint is `kept`.
template <class A>
__device__ __forceinline__ void memory_step_back(const Arguments& a, const Row<A>& row, const Kept& kept, int t) {
  float *own = row.own, *vectors = own + A::VECTORS, *d_state = own + A::D_STATE, *d_tape = row.tape(a), *d_link = row.link(a);
  const float *before = own + A::STATE + (t & 1) * STATE_SIZE, *after = own + A::STATE + (~t & 1) * STATE_SIZE;
  const float* tape = A::TAPE_SHARED ? own + A::TAPE_BEFORE : kept.tape(t);
  const float *written = after + WRITTEN, *erase = own + A::ERASE, *addend = own + A::ADD;
  float *d_reads = own + A::D_READS, *psi = own + A::PSI, *d_psi = own + A::D_PSI, *norms = own + A::NORMS;
  const int n = row.n, slot = row.thread / A::LANES, part = row.thread % A::LANES, at_once = A::TEAM / A::LANES;
  // An entry of the memory before the write, and after it.
  const auto kept_entry = [&](int i, int m) { return DEALLOCATION ? psi[i] * tape[i * STRIDE + m] : tape[i * STRIDE + m]; };

  activate(row);
  for (int k = row.thread; k < READS; k += A::TEAM) d_reads[k] += own[A::D_SEEN + UNITS + k];
  for (int k = row.thread; k < UNITS; k += A::TEAM) own[A::D_HIDDEN + (LSTM ? (LAYERS - 1) * UNITS : 0) + k] += own[A::D_SEEN + k];
  row.sync();  // what the heads asked for, gradients of the reads

  // Gradients of the read weightings from the reads; norms and retention.
  for (int first = 0; first < n; first += at_once) {
    const int i = first + slot, there = min(i, n - 1);
    float keep = 1.0f;
    for (int h = 0; h < READ_HEADS; h++) keep *= 1.0f - row.scalars(h)[FREE] * before[reading_at(h) + there];
    const bool leads = part == 0 && i < n;
    if (leads) psi[i] = keep;
    if (!DEALLOCATION) keep = 1.0f;
    const float w = written[there], *x = tape + there * STRIDE;
    const auto new_entry = [&](int m) { return keep * x[m] * (1.0f - w * erase[m]) + w * addend[m]; };
    if (!MASKED) {
      const float read_norm = inverse_norm<A::LANES>(part, new_entry), write_norm = inverse_norm<A::LANES>(part, [&](int m) { return x[m]; });
      if (leads) {
        norms[i] = read_norm;
        norms[PADDED + i] = write_norm;
      }
    } else {
      for (int h = 0; h < HEADS; h++) {
        const float* mask = row.mask(h);
        const float norm = h < READ_HEADS ? inverse_norm<A::LANES>(part, [&](int m) { return mask[m] * new_entry(m); })
                                          : inverse_norm<A::LANES>(part, [&](int m) { return mask[m] * x[m]; });
        if (leads) norms[h * PADDED + i] = norm;
      }
    }
    float sums[READ_HEADS];
    UNROLL for (int h = 0; h < READ_HEADS; h++) sums[h] = 0.0f;
    for_columns<A::LANES>(part, [&](int m) {
      const float y = new_entry(m);
      UNROLL for (int h = 0; h < READ_HEADS; h++) sums[h] += d_reads[h * WIDTH + m] * y;
    });
    UNROLL for (int h = 0; h < READ_HEADS; h++) sums[h] = over_lanes<A::LANES>(sums[h]);
    if (leads) UNROLL for (int h = 0; h < READ_HEADS; h++) d_state[reading_at(h) + i] += sums[h];
  }
  row.sync();  // gradients of the read weightings, norms, retention

  for (int task = row.warp; task <= READ_HEADS; task += A::WARPS) {
    if (task < READ_HEADS) {
      read_head_back(row, task);
    } else {  // of the precedence
      float total = 0, along = 0;
      for (int i = row.lane; i < n; i += 32) {
        total += written[i];
        along += before[PRECEDENCE + i] * d_state[PRECEDENCE + i];
      }
      total = over_warp(total);
      along = over_warp(along);
      if (row.lane == 0) {
        own[A::TOTAL] = total;
        own[A::TOTAL + 1] = along;
      }
    }
  }
  row.sync();  // alpha and delta, gradients of forward and backward weightings, sums of the precedence

  // The gradient of the memory after the write, and of the write weighting by it; links.
  for (int first = 0; first < n; first += at_once) {
    const int i = first + slot;
    float sum = 0;
    if (i < n) {
      const float w = written[i];
      float deltas = 0, v[READ_HEADS], alphas[READ_HEADS];
      UNROLL for (int h = 0; h < READ_HEADS; h++) {
        v[h] = after[reading_at(h) + i];
        alphas[h] = vectors[content_at(h) + i];
        if (ONE_ENTRY) alphas[h] = vectors[similarity_at(h) + i];
        else if (!MASKED) deltas += vectors[similarity_at(h) + i];
      }
      for_columns<A::LANES>(part, [&](int m) {
        const float entry = kept_entry(i, m), x = entry * (1.0f - w * erase[m]) + w * addend[m];
        float d = d_tape[i * STRIDE + m] + deltas * x;
        UNROLL for (int h = 0; h < READ_HEADS; h++) {
          d += v[h] * d_reads[h * WIDTH + m] + alphas[h] * row.focus(h)[m];
          if (MASKED && !ONE_ENTRY) d += vectors[similarity_at(h) + i] * row.mask(h)[m] * row.mask(h)[m] * x;
        }
        d_tape[i * STRIDE + m] = d;
        sum += d * (addend[m] - erase[m] * entry);
      });
    }
    sum = over_lanes<A::LANES>(sum);
    if (part == 0 && i < n) d_state[WRITTEN + i] += sum + d_state[PRECEDENCE + i] - own[A::TOTAL + 1];
  }
  link_step_back<A, 0, (READ_HEADS < HEADS_AT_ONCE ? READ_HEADS : HEADS_AT_ONCE)>(row, kept.link(t / SEGMENT), d_link, before, written, t % SEGMENT);
  row.sync();  // the memory's gradient, sums of the links

  for (int i = row.thread; i < n; i += A::TEAM) {
    const float* sums = own + A::SCRATCH;
    const auto columns = [&](int k) {
      float sum = 0;
      for (int g = 0; g < A::COLUMN_PARTS; g++) sum += sums[(g * (READ_HEADS + 2) + k) * PADDED + i];
      return sum;
    };
    const auto rows = [&](int k) {
      float sum = 0;
      for (int g = 0; g < A::ROW_PARTS; g++) sum += sums[A::ROW_SUMS + (g * (READ_HEADS + 1) + k) * PADDED + i];
      return sum;
    };
    for (int h = 0; h < READ_HEADS; h++) d_state[reading_at(h) + i] = rows(h) + columns(h);
    d_state[WRITTEN + i] += rows(READ_HEADS) + columns(READ_HEADS);
    d_state[PRECEDENCE + i] = (1.0f - own[A::TOTAL]) * d_state[PRECEDENCE + i] + columns(READ_HEADS + 1);
  }
  // Sums over the slots: for the keys of the read heads, for their masks, for erase and add.
  constexpr int SQUARES = MASKED ? READ_HEADS : 0;
  for (int item = row.thread; item < (READ_HEADS + SQUARES + 2) * WIDTH; item += A::TEAM) {
    const int q = item / WIDTH, m = item % WIDTH;
    float sum = 0;
    if (q < READ_HEADS + SQUARES) {
      const float e = erase[m], c = addend[m], *factor = vectors + (q < READ_HEADS ? content_at(q) : similarity_at(q - READ_HEADS));
      const bool square = q >= READ_HEADS;
#pragma unroll 4
      for (int i = 0; i < n; i++) {
        const float w = written[i], x = kept_entry(i, m) * (1.0f - w * e) + w * c;
        sum += factor[i] * (square && !ONE_ENTRY ? x * x : x);
      }
      own[(square ? A::SQUARES + (q - READ_HEADS) * WIDTH_PADDED : A::KEY_SUMS + q * WIDTH_PADDED) + m] = sum;
    } else {
      const bool erasing = q == READ_HEADS + SQUARES;
#pragma unroll 4
      for (int i = 0; i < n; i++) sum += d_tape[i * STRIDE + m] * written[i] * (erasing ? -kept_entry(i, m) : 1.0f);
      own[(erasing ? A::D_ERASE : A::D_ADD) + m] = sum;
    }
  }
  row.sync();  // gradients of the write weighting; the memory's gradient has been read

  if (row.warp == 0) write_head_back(row);
  if (row.warp == 1) allocation_back(row, after + USAGE);
  for (int first = 0; first < n; first += at_once) {
    const int i = first + slot;
    float sum = 0;
    if (i < n) {
      const float w = written[i], keep = psi[i];
      for_columns<A::LANES>(part, [&](int m) {
        const float d = d_tape[i * STRIDE + m] * (1.0f - w * erase[m]);
        if (DEALLOCATION) sum += d * tape[i * STRIDE + m];
        d_tape[i * STRIDE + m] = DEALLOCATION ? d * keep : d;
      });
    }
    if (DEALLOCATION) {
      sum = over_lanes<A::LANES>(sum);
      if (part == 0 && i < n) d_psi[i] = sum;
    }
  }
  row.sync();  // alpha and delta of the write head, gradients of the usage

  // Its content, usage and retention; d_f, of no more use, takes a slot's part of the gradients of the free gates.
  for (int first = 0; first < n; first += at_once) {
    const int i = first + slot;
    if (i >= n) continue;
    const float alpha = vectors[content_at(READ_HEADS) + i], delta = vectors[similarity_at(READ_HEADS) + i];
    const float *focus = row.focus(READ_HEADS), *mask = row.mask(READ_HEADS);
    for_columns<A::LANES>(part, [&](int m) {
      d_tape[i * STRIDE + m] += ONE_ENTRY ? delta * focus[m] : alpha * focus[m] + delta * (MASKED ? mask[m] * mask[m] : 1.0f) * tape[i * STRIDE + m];
    });
    if (part > 0) continue;
    const float u = before[USAGE + i], w = before[WRITTEN + i], g = d_state[USAGE + i];
    const float d = (DEALLOCATION ? d_psi[i] : 0.0f) + g * (u + w - u * w), d_used = g * psi[i];
    d_state[USAGE + i] = d_used * (1.0f - w);
    d_state[WRITTEN + i] = DETACHED ? 0.0f : d_used * (1.0f - u);
    float factors[READ_HEADS], others = 1.0f;  // the products of all heads before one, then those behind it
    UNROLL for (int h = 0; h < READ_HEADS; h++) {
      factors[h] = others;
      others *= 1.0f - row.scalars(h)[FREE] * before[reading_at(h) + i];
    }
    others = 1.0f;
    UNROLL for (int h = READ_HEADS - 1; h >= 0; h--) {
      const float free = row.scalars(h)[FREE], v = before[reading_at(h) + i], d_factor = d * factors[h] * others;
      d_state[reading_at(h) + i] -= d_factor * free;
      vectors[forward_at(h) + i] = -d_factor * v;
      others *= 1.0f - free * v;
    }
  }
  for (int item = row.thread; item < (MASKED ? 2 : 1) * WIDTH; item += A::TEAM) {
    const bool square = item >= WIDTH;
    const int m = item % WIDTH;
    const float* factor = vectors + (square ? similarity_at(READ_HEADS) : content_at(READ_HEADS));
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < n; i++) {
      const float x = tape[i * STRIDE + m];
      sum += factor[i] * (square && !ONE_ENTRY ? x * x : x);
    }
    own[(square ? A::SQUARES : A::KEY_SUMS) + READ_HEADS * WIDTH_PADDED + m] = sum;
  }
  row.sync();  // all sums

  // The interface: a warp for each head.
  float* d_rows = a.d_rows + (row.at * a.steps + t) * D_WIDTH + LAYERS * GATES_PADDED;
  for (int head = row.warp; head < HEADS; head += A::WARPS) {
    const bool reads = head < READ_HEADS;
    const int from = head * READ_ENTRIES, mask_at = reads ? READ_MASK : WRITE_MASK, lane = row.lane;
    const float *raw = own + A::RAW + from, *scalars = row.scalars(head), *sums = own + A::D_SCALARS + 8 * head;
    const float *key = row.key(head), *mask = row.mask(head), along = sums[ALONG], inverse = scalars[INVERSE], left = share_of_epsilon(inverse);
    float* d_raw = own + A::D_RAW + from;
    const auto give = [&](int e, float d) {
      d_raw[e] = d;
      d_rows[from + e] = d;
    };
    for (int m = lane; m < WIDTH; m += 32) {
      const float total = own[A::KEY_SUMS + head * WIDTH_PADDED + m];
      if (MASKED) {
        const float c = mask[m], squares = own[A::SQUARES + head * WIDTH_PADDED + m];
        const float d_key = ONE_ENTRY ? c * total * inverse * left : (c * total - along * key[m]) * inverse;  // of the masked key
        give(m, c * d_key);
        give(mask_at + m, (ONE_ENTRY ? raw[m] * d_key + key[m] * squares : raw[m] * d_key + key[m] * total + c * squares) * c * (1.0f - c));
      } else {
        give(m, ONE_ENTRY ? total * inverse * left : (total - along * key[m]) * inverse);
      }
      if (!reads) {
        give(WRITE_ERASE + m, own[A::D_ERASE + m] * erase[m] * (1.0f - erase[m]));
        give(WRITE_ADD + m, own[A::D_ADD + m]);
      }
    }
    if (lane == 0) {
      const int e = reads ? READ_STRENGTH : WRITE_STRENGTH;
      give(e, sums[D_STRENGTH] * softplus_slope(raw[e]));
    }
    if (reads) {
      float d_free = 0;
      for (int i = lane; i < n; i += 32) d_free += vectors[forward_at(head) + i];
      d_free = over_warp(d_free);
      const float free = scalars[FREE];
      if (lane == 1) give(READ_FREE_GATE, d_free * free * (1.0f - free));
      const float mean = scalars[MODES] * sums[D_MODES] + scalars[MODES + 1] * sums[D_MODES + 1] + scalars[MODES + 2] * sums[D_MODES + 2];
      if (lane >= 2 && lane < 5) give(READ_MODES + lane - 2, scalars[MODES + lane - 2] * (sums[D_MODES + lane - 2] - mean));
      if (SHARP && lane >= 5 && lane < 7) give(READ_SHARPNESS + lane - 5, sums[D_SHARPNESS + lane - 5] * softplus_slope(raw[READ_SHARPNESS + lane - 5]));
    } else {
      const float g_a = scalars[ALLOCATION_GATE], g_w = scalars[WRITE_GATE];
      if (lane == 1) give(WRITE_ALLOCATION_GATE, sums[D_ALLOCATION_GATE] * g_a * (1.0f - g_a));
      if (lane == 2) give(WRITE_WRITE_GATE, sums[D_WRITE_GATE] * g_w * (1.0f - g_w));
    }
  }
}

// From gradients of a layer's hidden values, of which `sums` has a share, to those of its gates.
template <class A, class P>
__device__ __forceinline__ void layer_output_back(const Arguments& a, const Row<A>& row, const Kept& kept, int t, int layer) {
  float *own = row.own, *d_rows = a.d_rows + (row.at * a.steps + t) * D_WIDTH + layer * GATES_PADDED;
  const float* gates = kept.gates(t, layer);
  for (int unit = row.thread; unit < UNITS; unit += A::TEAM) {
    float d_hidden = P::total(own + A::SCRATCH, unit);
    if (LSTM) {
      const int at = layer * UNITS + unit;
      d_hidden += own[A::D_HIDDEN + at];
      const float i = gates[unit], f = gates[UNITS + unit], g = gates[2 * UNITS + unit], o = gates[3 * UNITS + unit];
      const float squashed = tanhf(kept.cells(t + 1, layer)[unit]);
      const float d_cell = own[A::D_CELL + at] + d_hidden * o * (1.0f - squashed * squashed);
      const float d[4] = {d_cell * g * i * (1.0f - i), d_cell * kept.cells(t, layer)[unit] * f * (1.0f - f), d_cell * i * (1.0f - g * g), d_hidden * squashed * o * (1.0f - o)};
      own[A::D_CELL + at] = d_cell * f;
      UNROLL for (int k = 0; k < 4; k++) own[A::D_GATES + k * UNITS + unit] = d_rows[k * UNITS + unit] = d[k];
    } else {
      if (layer == LAYERS - 1) {
        d_hidden += own[A::D_HIDDEN + unit];
        own[A::D_HIDDEN + unit] = 0.0f;
      }
      const float h = gates[unit];
      own[A::D_GATES + unit] = d_rows[unit] = d_hidden * (1.0f - h * h);
    }
  }
}

// Grid as forward.
extern "C" __global__ void __launch_bounds__(THREADS, 1) dnc_backward(const __grid_constant__ Arguments a) {
  using A = Backward;
  const Row<A> row(a);
  const Kept kept(a, row.at);
  const int longest = row.longest(a);
  const float4* packed = a.packed + (long long)row.seed * PACKED;
  float* own = row.own;
  clear_region(row);
  row.sync();
  load_slots(a, row, a.final, own + A::D_STATE);
  if (a.final.memory && row.there) {
    for (int k = row.thread; k < READS; k += A::TEAM) own[A::D_READS + k] = a.final.reads[row.at * READS + k];
    if (LSTM) {
      for (int k = row.thread; k < LAYERS * UNITS; k += A::TEAM) {
        own[A::D_HIDDEN + k] = a.final.hidden[row.at * LAYERS * UNITS + k];
        own[A::D_CELL + k] = a.final.cell[row.at * LAYERS * UNITS + k];
      }
    }
  }
  fetch_step(a, row, kept, longest - 1);
  if (longest > 0) {
    AskBack::load<A::RESIDENT_ASK_BACK>(packed + PACKED_ASK_BACK, A::WEIGHTS_ASK_BACK);
    FirstBack::load<A::RESIDENT_FIRST_BACK>(packed + PACKED_FIRST_BACK, A::WEIGHTS_FIRST_BACK);
  }
  for (int t = longest - 1; t >= 0; t--) {
    const bool active = t < row.length;
    wait_for_copies();
    if (active) {
      row.sync();  // what was kept of the step; gradients of its state
      memory_step_back(a, row, kept, t);
    }
    __syncthreads();  // gradients of the interface; nothing kept of this step is of use any more
    fetch_step(a, row, kept, t - 1);
    AskBack::run<A, A::RESIDENT_ASK_BACK>(packed + PACKED_ASK_BACK, A::D_RAW, A::SCRATCH, A::WEIGHTS_ASK_BACK);
    __syncthreads();  // sums for the hidden values of the last layer
    if (active) layer_output_back<A, AskBack>(a, row, kept, t, LAYERS - 1);
    for (int layer = LAYERS - 1; layer > 0; layer--) {
      __syncthreads();  // gradients of the gates; sums read
      UpperBack::run<A, 0>(packed + PACKED_UPPER_BACK + (layer - 1) * UpperBack::VECTORS, A::D_GATES, A::SCRATCH, 0);
      __syncthreads();  // sums for what the layer saw
      if (!active) continue;
      if (LSTM) for (int k = row.thread; k < UNITS; k += A::TEAM) own[A::D_HIDDEN + layer * UNITS + k] = UpperBack::total(own + A::SCRATCH, UNITS + k);
      layer_output_back<A, UpperBack>(a, row, kept, t, layer - 1);
    }
    __syncthreads();  // gradients of the gates; sums read
    FirstBack::run<A, A::RESIDENT_FIRST_BACK>(packed + PACKED_FIRST_BACK, A::D_GATES, A::SCRATCH, A::WEIGHTS_FIRST_BACK);
    __syncthreads();  // sums for what the first layer saw
    if (!active) continue;
    for (int k = row.thread; k < READS + OWN_UNITS; k += A::TEAM) own[k < READS ? A::D_READS + k : A::D_HIDDEN + k - READS] = FirstBack::total(own + A::SCRATCH, k);
  }
  row.sync();  // gradients of the first state
  if (!row.there || !a.d_initial.memory) return;
  store_slots(a, row, a.final, a.d_initial, own + A::D_STATE);
  for (int k = row.thread; k < READS; k += A::TEAM) a.d_initial.reads[row.at * READS + k] = own[A::D_READS + k];
  if (LSTM) {
    for (int k = row.thread; k < LAYERS * UNITS; k += A::TEAM) {
      a.d_initial.hidden[row.at * LAYERS * UNITS + k] = own[A::D_HIDDEN + k];
      a.d_initial.cell[row.at * LAYERS * UNITS + k] = own[A::D_CELL + k];
    }
  }
}

// --- gradients of weights and inputs -------------------------------------------------------------------------------------

// A weight and its bias: sums over all steps of the outer products of gradients with what a layer saw. A tile has TILE_ROWS
// outputs and TILE_COLUMNS inputs, of which the one behind the last is the bias. Steps are added one after the other, sequence
// by sequence; those beyond a sequence's end add zeros. Grid: tiles, chunks of the sequences, S.
extern "C" __global__ void __launch_bounds__(TILE_THREADS) dnc_gradient(const __grid_constant__ Arguments a) {
  constexpr int LEFT = TILE_ROWS + 4, OWN_ROWS = 8, OWN_COLUMNS = 4;  // of a thread
  float *left = (float*)shared_memory, *right = left + TILE_DEPTH * LEFT;
  const int thread = threadIdx.x, seed = blockIdx.z, chunk = blockIdx.y;
  int job = 0, tile = blockIdx.x;
  const auto across = [&]() { return GRADIENT_JOBS[job].columns / TILE_COLUMNS + 1; };
  while (tile >= across() * ((GRADIENT_JOBS[job].rows + TILE_ROWS - 1) / TILE_ROWS)) tile -= across() * ((GRADIENT_JOBS[job].rows + TILE_ROWS - 1) / TILE_ROWS), job++;
  const int first_row = tile / across() * TILE_ROWS, first_column = tile % across() * TILE_COLUMNS;
  const int rows = GRADIENT_JOBS[job].rows, columns = GRADIENT_JOBS[job].columns, d_at = GRADIENT_JOBS[job].d_at, seen_at = GRADIENT_JOBS[job].seen_at;
  const int x = OWN_COLUMNS * (thread % (TILE_COLUMNS / OWN_COLUMNS)), y = OWN_ROWS * (thread / (TILE_COLUMNS / OWN_COLUMNS));
  const int begin = chunk * a.chunk_rows, end = min(begin + a.chunk_rows, a.batch * a.steps);
  float sums[OWN_ROWS][OWN_COLUMNS];
  UNROLL for (int i = 0; i < OWN_ROWS; i++) UNROLL for (int j = 0; j < OWN_COLUMNS; j++) sums[i][j] = 0.0f;
  for (int row = begin; row < end; row += TILE_DEPTH) {
    __syncthreads();  // the tile has been read
    const int place = thread % 32;
    for (int k = thread / 32; k < TILE_DEPTH; k += TILE_THREADS / 32) {
      const int b = min(row + k, end - 1) / a.steps, t = min(row + k, end - 1) % a.steps;
      const long long at = (long long)seed * a.batch + b;
      const bool used = row + k < end && t < a.lengths[at];
      const float* d = d_at < 0 ? a.d_outputs + (((long long)seed * a.steps + t) * a.batch + b) * OUTPUTS : a.d_rows + (at * a.steps + t) * D_WIDTH + d_at;
      const float* seen = a.kept + at * a.kept_size + (long long)t * SEEN_WIDTH + seen_at;
      UNROLL for (int c = place; c < TILE_ROWS; c += 32) copy_or_zero(left + k * LEFT + c, d + min(first_row + c, rows - 1), used && first_row + c < rows);
      UNROLL for (int c = place; c < TILE_COLUMNS; c += 32) {
        const int column = first_column + c;
        if (column >= columns) right[k * TILE_COLUMNS + c] = used && column == columns ? 1.0f : 0.0f;
        else copy_or_zero(right + k * TILE_COLUMNS + c, seen + column, used);
      }
    }
    wait_for_copies();
    __syncthreads();  // the tile
#pragma unroll 4
    for (int k = 0; k < TILE_DEPTH; k++) {
      const float4 u[2] = {*(const float4*)(left + k * LEFT + y), *(const float4*)(left + k * LEFT + y + 4)};
      const float4 v = *(const float4*)(right + k * TILE_COLUMNS + x);
      const float us[8] = {u[0].x, u[0].y, u[0].z, u[0].w, u[1].x, u[1].y, u[1].z, u[1].w}, vs[4] = {v.x, v.y, v.z, v.w};
      UNROLL for (int i = 0; i < OWN_ROWS; i++) UNROLL for (int j = 0; j < OWN_COLUMNS; j++) sums[i][j] += us[i] * vs[j];
    }
  }
  float* gradient = a.gradient + ((long long)chunk * a.seeds + seed) * PARAMETERS;
  for (int i = 0; i < OWN_ROWS; i++) {
    const int o = first_row + y + i;
    if (o >= rows) break;
    for (int j = 0; j < OWN_COLUMNS; j++) {
      const int column = first_column + x + j;
      if (column < columns) gradient[GRADIENT_JOBS[job].weight + (long long)o * columns + column] = sums[i][j];
      else if (column == columns) gradient[GRADIENT_JOBS[job].bias + o] = sums[i][j];
    }
  }
}

// Adds the chunks up, in order, into the first: [chunks, S, P]. Grid: any.
extern "C" __global__ void dnc_add_chunks(const __grid_constant__ Arguments a) {
  const long long count = (long long)a.seeds * PARAMETERS;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
    float sum = 0;
    for (int chunk = 0; chunk < a.chunks; chunk++) sum += a.gradient[chunk * count + i];
    a.gradient[i] = sum;
  }
}

// Gradients of the inputs, from those of the first layer's gates. Grid: any.
extern "C" __global__ void dnc_input_gradient(const __grid_constant__ Arguments a) {
  const long long count = (long long)a.seeds * a.steps * a.batch * INPUTS;
  for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += (long long)gridDim.x * blockDim.x) {
    const int input = at % INPUTS, b = at / INPUTS % a.batch, t = at / INPUTS / a.batch % a.steps, seed = at / INPUTS / a.batch / a.steps;
    const long long sequence = (long long)seed * a.batch + b;
    float sum = 0;
    if (t < a.lengths[sequence]) {
      const float* d_gates = a.d_rows + (sequence * a.steps + t) * D_WIDTH;
      const float* weight = a.parameters + (long long)seed * PARAMETERS + WEIGHT_FIRST + input;
#pragma unroll 4
      for (int k = 0; k < GATES; k++) sum += d_gates[k] * weight[(long long)k * FIRST_COLUMNS];
    }
    a.d_inputs[at] = sum;
  }
}
