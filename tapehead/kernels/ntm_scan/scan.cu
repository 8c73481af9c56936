// The scan of a Neural Turing Machine: whole sequences forward and backward, one block of threads per sequence.
//
// gpu_plan.py writes the sizes and the shared-memory layout in front of this text and explains the cutting of the work;
// README-gpu.md has the reasons and the measurements. equations.py and reference.py say what is computed, contract.py
// what the tensors are.
//
// Words: a *team* is the LANES_PER_SLOT lanes that share a memory slot; a *row* is a slot's values, COLUMNS of them in
// each lane's registers; *kept* is what the forward pass writes down for the backward pass. Names that start with d_
// are gradients. Barriers are all __syncthreads(), and every branch around one is taken by the whole block.

constexpr int WARPS = THREADS / 32, SLOT_THREADS = SLOT_WARPS * 32;
constexpr int HEADS = READ_HEADS + WRITE_HEADS;
constexpr int TAPS = 2 * SHIFT_RANGE + 1;
constexpr int INTERFACE = READ_HEADS * READ_ENTRIES + WRITE_HEADS * WRITE_ENTRIES;
constexpr int READS = READ_HEADS * WIDTH;
constexpr int GATES = LSTM ? 4 * UNITS : UNITS;
constexpr int FIRST_STRIDE = INPUTS + READS + (LSTM ? UNITS : 0);  // columns of the first layer's weight
constexpr int UPPER_STRIDE = LSTM ? 2 * UNITS : UNITS;             // and of the layers above
constexpr int UPPER_SIZE = GATES * UPPER_STRIDE + GATES;           // parameters of one of those
constexpr int PADDED_WIDTH = COLUMNS * LANES_PER_SLOT;
constexpr int TEAMS = THREADS / LANES_PER_SLOT;
constexpr int OUTPUT_WIDTH = UNITS + (OUTPUT_READS ? READS : 0);
constexpr int SEEN = LAYERS * GATES + INTERFACE;  // where the gradient of what the output layer saw stands in a step's d_row
constexpr int UP4_UNITS = (UNITS + 3) / 4 * 4, UP4_INTERFACE = (INTERFACE + 3) / 4 * 4, UP4_TAPE = (TAPE + 3) / 4 * 4;
constexpr int HEAD_SCALARS = 4 + TAPS;  // per head in shared memory: strength, gate, sharpening, write gate, raw shifts
constexpr float NORM_EPSILON = 1e-18f, SHARPEN_EPSILON = 1e-20f;
constexpr bool AHEAD = HEADS <= 4;  // load the next step's slot records one step early; many heads lack the registers

#define UNROLL _Pragma("unroll")

template <int INDEX>
struct Piece {
  static constexpr int index = INDEX;
};

struct State {
  float *memory, *read_weightings, *write_weightings, *reads, *hidden, *cell;
};

// All that the kernels are given; null where a kernel or a mode does not use it.
struct Arguments {
  const float* parameters;  // [S, P]
  const float* inputs;      // [S, T, B, I]
  const long long* lengths; // [S, B]
  const long long* slots;   // [S, B]
  State initial, final;     // in the backward pass `final` holds the gradients that come in
  State d_initial;          // gradients that go out
  float* outputs;           // [S, T, B, O]
  float* kept;              // [S, B, kept_size]
  const float4* packed;     // [S, PACKED_TOTAL]: weights that are streamed
  const float* targets;     // [S, T, B, O]; null: no loss
  const float* mask;        // [S, T, B]: a step counts where it is not zero
  float* costs;             // [S, B]
  float* d_outputs;         // [S, T, B, O]
  float* d_rows;            // [S, B, T, GRADIENT_WIDTH]
  float* gradient;          // [chunks, S, P]
  float* squares;           // [S, tiles] or null: a tile's sum of squares, NaN where it or a cost is not finite
  float* d_inputs;          // [S, T, B, I]
  long long kept_size;      // floats per sequence
  int seeds, steps, batch;
  int keep;                 // whether the forward pass writes more than rows
  int chunks, chunk_rows;
  int loss;                 // one of these
};
enum Loss { BINARY, CATEGORICAL };

extern __shared__ float4 shared_memory[];

// ---------------------------------------------------------------------------------------------- small functions

__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ float sigmoid(float x) { return quotient(1.0f, 1.0f + expf(-x)); }
// (1 - e^-2|x|) / (1 + e^-2|x|), or a polynomial where that would cancel. Without branches, unlike tanhf.
__device__ __forceinline__ float tanh_from(float x, float e) {
  const float square = x * x, far = copysignf(quotient(1.0f - e, 1.0f + e), x);
  const float near = x + x * square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315 + square * (62.0f / 2835))));
  return square < 0.0625f ? near : far;
}
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanh_from(x, expf(-2.0f * fabsf(x))); }
// log(1 + e) for e >= 0, without branches, unlike log1pf.
__device__ __forceinline__ float log_one_plus(float e) {
  const float near = e * (1.0f + e * (-1.0f / 2 + e * (1.0f / 3 + e * (-1.0f / 4 + e * (1.0f / 5 + e * (-1.0f / 6 + e * (1.0f / 7 - e * (1.0f / 8))))))));
  return e < 0.125f ? near : logf(1.0f + e);
}
__device__ __forceinline__ float clipped(float x) {  // keeps NaN, as torch.clamp does
  if (!CLIP) return x;
  return x < -CLIP_AT ? -CLIP_AT : (x > CLIP_AT ? CLIP_AT : x);
}
__device__ __forceinline__ bool finite(float x) { return fabsf(x) <= 3.402823466e38f; }
__device__ __forceinline__ float from_lane(float x, int bit) { return __shfl_xor_sync(0xffffffffu, x, bit); }

__device__ __forceinline__ float team_sum(float x) {
  UNROLL for (int bit = 1; bit < LANES_PER_SLOT; bit *= 2) x += from_lane(x, bit);
  return x;
}
__device__ __forceinline__ float team_max(float x) {
  UNROLL for (int bit = 1; bit < LANES_PER_SLOT; bit *= 2) x = fmaxf(x, from_lane(x, bit));
  return x;
}
__device__ __forceinline__ float slots_sum(float x) {  // over the slots of a warp
  UNROLL for (int bit = LANES_PER_SLOT; bit < 32; bit *= 2) x += from_lane(x, bit);
  return x;
}
__device__ __forceinline__ float slots_max(float x) {
  UNROLL for (int bit = LANES_PER_SLOT; bit < 32; bit *= 2) x = fmaxf(x, from_lane(x, bit));
  return x;
}

// Sums COUNT values over the slots of a warp and stores value i at target[i]. Halves the list at every exchange: a lane
// gives away the half that its partner keeps, so 20 values cost about 20 exchanges, not 20 per level.
template <int COUNT, int BIT, int LOWEST>
__device__ __forceinline__ void fold(float* v, int lane, int start, int end, float* target, bool store) {
  if constexpr (BIT < LOWEST) {
    UNROLL for (int i = 0; i < COUNT; i++)
      if (store && start + i < end) target[start + i] = v[i];
  } else if constexpr (COUNT == 1) {
    v[0] += from_lane(v[0], BIT);
    fold<1, BIT / 2, LOWEST>(v, lane, start, end, target, store && !(lane & BIT));
  } else {
    constexpr int half = (COUNT + 1) / 2;
    const bool upper = lane & BIT;
    UNROLL for (int i = 0; i < half; i++) {
      const float low = v[i], high = i + half < COUNT ? v[i + half] : 0.0f;
      v[i] = (upper ? high : low) + from_lane(upper ? low : high, BIT);
    }
    fold<half, BIT / 2, LOWEST>(v, lane, upper ? start + half : start, upper ? end : min(end, start + half), target, store);
  }
}
template <int COUNT>
__device__ __forceinline__ void store_slot_sums(float (&v)[COUNT], float* target, bool store) {
  fold<COUNT, 16, LANES_PER_SLOT>(v, threadIdx.x % 32, 0, COUNT, target, store);
}

// COUNT values, `stride` apart, in four sums, because one would wait for every addition.
template <int COUNT>
__device__ __forceinline__ float sum_of_strided(const float* values, int stride) {
  float sums[4] = {0, 0, 0, 0};
  UNROLL for (int i = 0; i < COUNT; i++) sums[i % 4] += values[i * stride];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__device__ __forceinline__ float sum_of_warps(const float* partials) {  // [SLOT_WARPS], 16-byte aligned
  float sums[4] = {0, 0, 0, 0};
  UNROLL for (int i = 0; i < SLOT_WARPS; i += 4) {
    const float4 four = *(const float4*)(partials + i);
    sums[0] += four.x;
    if (i + 1 < SLOT_WARPS) sums[1] += four.y;
    if (i + 2 < SLOT_WARPS) sums[2] += four.z;
    if (i + 3 < SLOT_WARPS) sums[3] += four.w;
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// From global to shared memory without a register on the way, so that any number can be in flight; zero where
// it is not `used`, whatever stands there.
__device__ __forceinline__ void copy_or_zero(float* to, const float* from, bool used) {
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

// ---------------------------------------------------------------------------------------------- matrix products

// y[o] = sum_k W[o, k] x[k], cut as gpu_plan.py says. The input vector stands at position(k), so that a thread's part
// of it is aligned. Partial sums go to partials[split][output].
template <int OUTPUTS_, int INNER, int SPLITS, int DEPTH, int IN_REGISTERS, int IN_SHARED>
struct Product {
  static constexpr int GROUPS = (OUTPUTS_ + 3) / 4, ACTIVE = GROUPS * SPLITS, UP4_DEPTH = (DEPTH + 3) / 4 * 4;
  static constexpr int STREAMED = DEPTH - IN_REGISTERS - IN_SHARED, QUADS = UP4_DEPTH / 4;
  static constexpr int VECTOR = SPLITS * UP4_DEPTH, PARTIALS = 4 * ACTIVE, WEIGHTS = 4 * IN_SHARED * ACTIVE;
  float4 held[IN_REGISTERS > 0 ? IN_REGISTERS : 1];

  static __device__ __forceinline__ int position(int k) { return k / DEPTH * UP4_DEPTH + k % DEPTH; }

  template <class Weight>
  static __device__ float4 four(const Weight& weight, int thread, int j) {
    const int group = thread % GROUPS, k = thread / GROUPS * DEPTH + j;
    float4 w;
    const int there = min(k, INNER - 1), last = OUTPUTS_ - 1;  // loads under no branch, so that many are in flight
    w.x = *weight(min(4 * group + 0, last), there);
    w.y = *weight(min(4 * group + 1, last), there);
    w.z = *weight(min(4 * group + 2, last), there);
    w.w = *weight(min(4 * group + 3, last), there);
    if (k >= INNER) w = make_float4(0, 0, 0, 0);
    if (4 * group + 1 > last) w.y = 0.0f;
    if (4 * group + 2 > last) w.z = 0.0f;
    if (4 * group + 3 > last) w.w = 0.0f;
    return w;
  }

  // Brings the weights onto the chip; what goes to shared memory is there after `wait_for_copies` and a barrier.
  template <class Weight>
  __device__ __forceinline__ void load(const Weight& weight, float* shared) {
    const int thread = threadIdx.x;
    if (thread >= ACTIVE) return;
#pragma unroll 4
    for (int j = 0; j < IN_SHARED; j++) {
      UNROLL for (int component = 0; component < 4; component++)
        copy(weight, thread % GROUPS * 4 + component, thread / GROUPS * DEPTH + IN_REGISTERS + j, shared + (j * ACTIVE + thread) * 4 + component);
    }
    UNROLL for (int j = 0; j < IN_REGISTERS; j++) held[j] = four(weight, thread, j);
  }

  // The same where a thread's rows are neighbours in the parameters and its outputs are not: a warp copies eight rows of
  // four outputs at a time, which are whole 32-byte sectors. What belongs into registers passes through shared memory.
  template <class Weight>
  __device__ __forceinline__ void load_rows_together(const Weight& weight, float* shared) {
    if constexpr (IN_REGISTERS > IN_SHARED) {
      load(weight, shared);
    } else {
      if constexpr (IN_REGISTERS > 0) {
        __syncthreads();
        stage<0, IN_REGISTERS>(weight, shared);
        wait_for_copies();
        __syncthreads();
        if (threadIdx.x < ACTIVE) UNROLL for (int j = 0; j < IN_REGISTERS; j++) held[j] = ((float4*)shared)[j * ACTIVE + threadIdx.x];
        __syncthreads();
      }
      stage<IN_REGISTERS, IN_REGISTERS + IN_SHARED>(weight, shared);
    }
  }
  template <int FIRST, int LAST, class Weight>
  static __device__ __forceinline__ void stage(const Weight& weight, float* shared) {
    const int lane = threadIdx.x % 32, component = lane % 4;
#pragma unroll 4
    for (int thread = threadIdx.x / 32; thread < ACTIVE; thread += THREADS / 32) {
      UNROLL for (int first = 0; first < LAST - FIRST; first += 8) {
        const int j = first + lane / 4;
        if (j < LAST - FIRST) copy(weight, thread % GROUPS * 4 + component, thread / GROUPS * DEPTH + FIRST + j, shared + (j * ACTIVE + thread) * 4 + component);
      }
    }
  }
  template <class Weight>
  static __device__ __forceinline__ void copy(const Weight& weight, int output, int k, float* to) {
    copy_or_zero(to, weight(min(output, OUTPUTS_ - 1), min(k, INNER - 1)), output < OUTPUTS_ && k < INNER);
  }

  template <class Weight>
  static __device__ void pack(const Weight& weight, float4* packed) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < STREAMED * ACTIVE; i += gridDim.x * blockDim.x)
      packed[i] = four(weight, i % ACTIVE, IN_REGISTERS + IN_SHARED + i / ACTIVE);
  }

  static __device__ __forceinline__ void multiply(float4& sum, float4 w, float x) {
    sum.x += w.x * x;
    sum.y += w.y * x;
    sum.z += w.z * x;
    sum.w += w.w * x;
  }
  static __device__ __forceinline__ float part(float4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

  // Rows 4 * FIRST to 4 * LAST of this thread's list, times the vector.
  template <int FIRST, int LAST>
  __device__ __forceinline__ void accumulate(float4& sum, const float* vector, const float* shared, const float4* packed) const {
    const int thread = threadIdx.x;
    if (thread >= ACTIVE) return;
    const float4* x4 = (const float4*)(vector + thread / GROUPS * UP4_DEPTH);
    const float4* resident = (const float4*)shared + thread;
    constexpr int REST = (IN_REGISTERS + IN_SHARED + 3) / 4;  // quads before the streamed part, if there is one
    constexpr int NEAR = LAST < REST || STREAMED == 0 ? LAST : REST;
    UNROLL for (int quad = FIRST; quad < NEAR; quad++) {
      const float4 x = x4[quad];
      UNROLL for (int i = 0; i < 4; i++) {
        const int j = 4 * quad + i;
        if (j < DEPTH) multiply(sum, j < IN_REGISTERS ? held[j < IN_REGISTERS ? j : 0] : resident[(j - IN_REGISTERS) * ACTIVE], part(x, i));
      }
    }
    if constexpr (STREAMED > 0) {
      constexpr int FAR = FIRST > REST ? FIRST : REST;
      const float4* stream = packed + thread;
#pragma unroll 4
      for (int quad = FAR; quad < LAST; quad++) {
        const float4 x = x4[quad];
        UNROLL for (int i = 0; i < 4; i++) {
          const int j = 4 * quad + i;
          if (j < DEPTH) multiply(sum, __ldg(stream + (j - IN_REGISTERS - IN_SHARED) * ACTIVE), part(x, i));
        }
      }
    }
  }

  // One of `PIECES` parts of the work, so that it can fill the waiting time of other phases.
  template <int PIECE, int PIECES>
  __device__ __forceinline__ void piece(float4& sum, const float* vector, const float* shared, const float4* packed) const {
    accumulate<QUADS * PIECE / PIECES, QUADS*(PIECE + 1) / PIECES>(sum, vector, shared, packed);
  }
  __device__ __forceinline__ void store(float4 sum, float* partials) const {
    if (threadIdx.x < ACTIVE) ((float4*)partials)[threadIdx.x] = sum;
  }
  static __device__ __forceinline__ float total(const float* partials, int output) {
    return sum_of_strided<SPLITS>(partials + output, 4 * GROUPS);
  }
  static __device__ __forceinline__ float4 total_of_group(const float* partials, int group) {
    float4 sum = make_float4(0, 0, 0, 0);
    UNROLL for (int split = 0; split < SPLITS; split++) multiply(sum, ((const float4*)partials)[split * GROUPS + group], 1.0f);
    return sum;
  }
};

// Where the weights of the products stand in a seed's parameters. An LSTM's forward products give the four gates of a
// unit next to each other; everywhere else gates stand as in the parameters.
__device__ __forceinline__ int weight_offset(int layer) { return layer == 0 ? WEIGHT_FIRST : WEIGHT_UPPER + (layer - 1) * UPPER_SIZE; }
__device__ __forceinline__ int bias_offset(int layer) { return layer == 0 ? BIAS_FIRST : BIAS_UPPER + (layer - 1) * UPPER_SIZE; }
__device__ __forceinline__ int gate_row(int output) { return LSTM ? output % 4 * UNITS + output / 4 : output; }

struct BelowWeight {  // [x, reads, 1] or [hidden of the layer below, 1] -> gates
  const float* p;
  int layer;
  __device__ const float* operator()(int output, int k) const {
    const int columns = layer == 0 ? INPUTS + READS : UNITS, stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE;
    const int row = gate_row(output);
    return &p[k < columns ? weight_offset(layer) + row * stride + k : bias_offset(layer) + row];
  }
};
struct RecurrentWeight {  // hidden of the step before -> gates
  const float* p;
  int layer;
  __device__ const float* operator()(int output, int k) const {
    const int stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE, columns = layer == 0 ? INPUTS + READS : UNITS;
    return &p[weight_offset(layer) + gate_row(output) * stride + columns + k];
  }
};
struct InterfaceWeight {  // [hidden, 1] -> interface
  const float* p;
  __device__ const float* operator()(int output, int k) const {
    return &p[k < UNITS ? INTERFACE_WEIGHT + output * UNITS + k : INTERFACE_BIAS + output];
  }
};
struct BelowBack {  // d_gates -> d_reads or d_hidden of the layer below
  const float* p;
  int layer;
  __device__ const float* operator()(int output, int k) const {
    const int stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE;
    return &p[weight_offset(layer) + k * stride + (layer == 0 ? INPUTS : 0) + output];
  }
};
struct RecurrentBack {  // d_gates -> d_hidden of the step before
  const float* p;
  int layer;
  __device__ const float* operator()(int output, int k) const {
    const int stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE, columns = layer == 0 ? INPUTS + READS : UNITS;
    return &p[weight_offset(layer) + k * stride + columns + output];
  }
};
struct InterfaceBack {  // d_interface -> d_hidden
  const float* p;
  __device__ const float* operator()(int output, int k) const { return &p[INTERFACE_WEIGHT + k * UNITS + output]; }
};

// ---------------------------------------------------------------------------------------------- where things are

// What the forward pass writes down of one sequence.
struct Kept {
  float* base;
  int steps;
  // before(t) holds reads and hidden values of step t - 1, so before(t + 1) those of step t
  __device__ __forceinline__ float* before(int t) const { return base + (long long)t * ROW_WIDTH; }
  __device__ __forceinline__ float* gates(int t, int layer) const {  // [UNITS, 4], after the activations
    return before(steps + 1) + ((long long)t * LAYERS + layer) * 4 * UP4_UNITS;
  }
  __device__ __forceinline__ float* cells(int t, int layer) const {
    return gates(LSTM ? steps : 0, 0) + ((long long)t * LAYERS + layer) * UP4_UNITS;
  }
  __device__ __forceinline__ float* raw(int t) const { return cells(LSTM ? steps : 0, 0) + (long long)t * UP4_INTERFACE; }
  __device__ __forceinline__ float* asked(int t) const { return raw(steps) + (long long)t * UP4_INTERFACE; }
  // [HEADS, TAPE] of (content, shifted, new, previous) weights
  __device__ __forceinline__ float4* records(int t) const { return (float4*)asked(steps) + (long long)t * HEADS * TAPE; }
  // memory after step t, one value per thread and plane
  __device__ __forceinline__ float* tape(int t) const {
    return (float*)records(steps) + (long long)t * SLOTS_PER_THREAD * COLUMNS * SLOT_THREADS;
  }
};

// One sequence and this thread's place in it.
struct Place {
  int seed, row, slots, length;
  long long sequence;  // seed * batch + row
  int lane, team, first_column, warp;
  bool leader;  // of its team
  __device__ __forceinline__ int slot(int s) const { return s * TEAMS + team; }
  __device__ __forceinline__ bool active(int s) const { return slot(s) < slots; }
  __device__ __forceinline__ bool has_slots() const { return SLOT_WARPS == WARPS || warp < SLOT_WARPS; }  // a whole warp's
  __device__ __forceinline__ bool on_tape(int s) const { return slot(s) < TAPE; }
  // Every other warp does its share of a matrix product before its share of the addressing: one half of the warps then
  // keeps shared memory busy while the other waits for exchanges.
  __device__ __forceinline__ bool works_ahead() const { return warp % 2; }
};

__device__ __forceinline__ Place place_of(const Arguments& a, long long sequence) {
  Place at;
  const int thread = threadIdx.x;
  at.sequence = sequence;
  at.seed = sequence / a.batch;
  at.row = sequence % a.batch;
  at.slots = min(max((int)a.slots[sequence], 1), TAPE);
  at.length = min(max((int)a.lengths[sequence], 0), a.steps);
  at.lane = thread % LANES_PER_SLOT;
  at.team = thread / LANES_PER_SLOT;
  at.warp = thread / 32;
  at.first_column = at.lane * COLUMNS;
  at.leader = at.lane == 0;
  return at;
}

using Rows = float[SLOTS_PER_THREAD][COLUMNS];  // one thread's part of the memory

// The memory of a state tensor; unused slots and padding columns read as zero.
__device__ __forceinline__ void load_memory(Rows& rows, const float* memory, const Place& at) {
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
    UNROLL for (int i = 0; i < COLUMNS; i++) {
      const int column = at.first_column + i;
      rows[s][i] = memory && at.active(s) && column < WIDTH ? memory[(at.sequence * TAPE + at.slot(s)) * WIDTH + column] : 0.0f;
    }
  }
}
// Unused slots are copied from `untouched` (null: zeros).
__device__ __forceinline__ void store_memory(const Rows& rows, float* memory, const float* untouched, const Place& at) {
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
    UNROLL for (int i = 0; i < COLUMNS; i++) {
      const int column = at.first_column + i;
      const long long index = (at.sequence * TAPE + at.slot(s)) * WIDTH + column;
      if (at.on_tape(s) && column < WIDTH) memory[index] = at.active(s) ? rows[s][i] : untouched ? untouched[index] : 0.0f;
    }
  }
}

// An interface entry is one of these; *_AT, from the plan, is where each begins among the entries of its head.
enum Field { KEY, STRENGTH, GATE, SHIFT, SHARPENING, ERASE_, ADD_, WRITE_GATE_ };
struct Entry {
  int head, index;  // head counts read heads, then write heads; index within the field
  Field field;
};
__device__ __forceinline__ Entry entry_of(int o) {
  Entry e;
  int i;
  if (o < READ_HEADS * READ_ENTRIES) {
    e.head = o / READ_ENTRIES;
    i = o % READ_ENTRIES;
  } else {
    e.head = READ_HEADS + (o - READ_HEADS * READ_ENTRIES) / WRITE_ENTRIES;
    i = (o - READ_HEADS * READ_ENTRIES) % WRITE_ENTRIES;
  }
  const auto within = [&](Field field, int at, int size) {
    if (i >= at && i < at + size) e.field = field, e.index = i - at;
  };
  within(KEY, KEY_AT, WIDTH);
  within(STRENGTH, STRENGTH_AT, 1);
  within(GATE, GATE_AT, 1);
  within(SHIFT, SHIFT_AT, SHIFT_INPUTS);
  within(SHARPENING, SHARPENING_AT, 1);
  if (e.head >= READ_HEADS) {
    within(ERASE_, ERASE_AT, WIDTH);
    within(ADD_, ADD_AT, WIDTH);
    within(WRITE_GATE_, WRITE_GATE_AT, WRITE_GATE);
  }
  return e;
}

// What is done to an interface entry; which one is settled once per sequence.
enum Activation { RAW, TANH, SIGMOID, SOFTPLUS, ONE_PLUS_SOFTPLUS, SHIFT_WEIGHT };
__device__ __forceinline__ Activation activation_of(Field field) {
  switch (field) {
    case KEY: return KEY_TANH ? TANH : RAW;
    case STRENGTH: return SOFTPLUS;
    case SHARPENING: return ONE_PLUS_SOFTPLUS;
    case SHIFT: return SHIFT_WEIGHT;
    case ADD_: return ADD_ACTIVATION == 0 ? RAW : ADD_ACTIVATION == 1 ? TANH : SIGMOID;
    default: return SIGMOID;
  }
}
__device__ __forceinline__ float activate(Activation kind, float x) {
  if (kind == RAW || kind == SHIFT_WEIGHT) return x;
  if (kind == TANH) return hyperbolic_tangent(x);
  if (kind == SIGMOID) return sigmoid(x);
  return fmaxf(x, 0.0f) + log_one_plus(expf(-fabsf(x))) + (kind == ONE_PLUS_SOFTPLUS ? 1.0f : 0.0f);
}

// Where an entry stands in shared memory, given the offsets of one of the two layouts.
__device__ __forceinline__ int asked_place(Entry e, int keys, int erase, int add, int scalars) {
  const int writer = e.head - READ_HEADS;
  switch (e.field) {
    case KEY: return keys + e.head * PADDED_WIDTH + e.index;
    case STRENGTH: return scalars + e.head * HEAD_SCALARS;
    case GATE: return scalars + e.head * HEAD_SCALARS + 1;
    case SHARPENING: return scalars + e.head * HEAD_SCALARS + 2;
    case WRITE_GATE_: return scalars + e.head * HEAD_SCALARS + 3;
    case SHIFT: return scalars + e.head * HEAD_SCALARS + 4 + e.index;
    case ERASE_: return erase + writer * PADDED_WIDTH + e.index;
    default: return add + writer * PADDED_WIDTH + e.index;
  }
}

// Which interface entry a thread looks after. ENTRY_ORDER puts entries of one kind into whole warps, because branches
// of one warp run one after the other; a gap is -1.
constexpr int ENTRIES = (ENTRY_ORDER_SIZE + THREADS - 1) / THREADS;
__device__ __forceinline__ int entry_here(int i) {
  const int at = threadIdx.x + i * THREADS;
  return at < ENTRY_ORDER_SIZE ? ENTRY_ORDER[at] : -1;
}
struct OwnEntry {
  Activation kind;
  int output, place;  // -1: none; place in shared memory
  int first_lane;     // that has the head's first shift entry: a head's taps are in one warp, side by side
  bool taps_in_warp;  // whether any lane has a tap
};
__device__ __forceinline__ OwnEntry own_entry(int o, int keys, int erase, int add, int scalars) {
  const Entry e = entry_of(max(o, 0));
  const Activation kind = activation_of(e.field);
  const bool taps = __any_sync(0xffffffffu, o >= 0 && kind == SHIFT_WEIGHT);
  return OwnEntry{kind, o, asked_place(e, keys, erase, add, scalars), (int)threadIdx.x % 32 - e.index, taps};
}

// The paper's other shift: a width-one uniform distribution from `amount` on, as weights of the shifts -r .. r.
__device__ __forceinline__ float scalar_shift_weight(float raw, int tap) {
  const float amount = SHIFT_RANGE * hyperbolic_tangent(raw), whole = floorf(amount), part = amount - whole, offset = tap - SHIFT_RANGE;
  return offset == whole ? 1.0f - part : offset == whole + 1.0f ? part : part - part;  // NaN stays NaN
}

__device__ __forceinline__ int around(int slot, int slots) {  // slot modulo slots; the division is rare
  if (slot < 0 || slot >= slots) slot = (slot % slots + slots) % slots;
  return slot;
}

// The slots that Eq. 8 looks at, by tap: the same at every step, so found once if there are few.
struct Neighbours {
  static constexpr bool HELD = SLOTS_PER_THREAD * TAPS <= 6;
  int held[HELD ? SLOTS_PER_THREAD * TAPS : 1];
  __device__ __forceinline__ explicit Neighbours(const Place& at) {
    if constexpr (HELD) {
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++)
        UNROLL for (int j = 0; j < TAPS; j++) held[s * TAPS + j] = around(at.slot(s) - (j - SHIFT_RANGE), at.slots);
    }
  }
  // Where the focus comes from under shift j - r; the other way round it is tap TAPS - 1 - j.
  __device__ __forceinline__ int operator()(const Place& at, int s, int j) const {
    if constexpr (HELD) return held[s * TAPS + j];
    return around(at.slot(s) - (j - SHIFT_RANGE), at.slots);
  }
};

__device__ __forceinline__ void load_columns(float (&v)[COLUMNS], const float* padded, const Place& at) {
  UNROLL for (int i = 0; i < COLUMNS; i++) v[i] = padded[at.first_column + i];
}

// Eq. 6 scales a vector with an entry above one down to it, so that squares cannot overflow. The cosine is the same to
// float32 without that as long as they do not, because epsilon then vanishes beside the norm.
struct Norm {
  float scale, squared;  // of the vector: one unless it is huge; squared norm of the scaled vector, with epsilon
};
// Keys of COUNT heads against this thread's slots.
template <int COUNT>
struct Comparison {
  Norm row[SLOTS_PER_THREAD], key[COUNT];
  float dot[COUNT][SLOTS_PER_THREAD];  // of the scaled key and the scaled row
};
constexpr float HUGE_SQUARE = 1e18f;

__device__ __forceinline__ Norm scaled_norm(const float (&v)[COLUMNS]) {
  float most = 1.0f, squared = 0;
  UNROLL for (int i = 0; i < COLUMNS; i++) most = fmaxf(most, fabsf(v[i]));
  Norm norm;
  norm.scale = 1.0f / team_max(most);
  UNROLL for (int i = 0; i < COLUMNS; i++) squared += v[i] * norm.scale * (v[i] * norm.scale);
  norm.squared = team_sum(squared) + NORM_EPSILON;
  return norm;
}

// The exchanges of a level do not wait for one another, and one vote says whether anything was huge.
template <int COUNT>
__device__ __forceinline__ Comparison<COUNT> compare(const float* keys, const Rows& rows, const Place& at) {
  Comparison<COUNT> c;
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
    c.row[s] = Norm{1.0f, 0.0f};
    UNROLL for (int i = 0; i < COLUMNS; i++) c.row[s].squared += rows[s][i] * rows[s][i];
  }
  UNROLL for (int h = 0; h < COUNT; h++) {
    float key[COLUMNS];
    load_columns(key, keys + h * PADDED_WIDTH, at);
    c.key[h] = Norm{1.0f, 0.0f};
    UNROLL for (int i = 0; i < COLUMNS; i++) c.key[h].squared += key[i] * key[i];
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      c.dot[h][s] = 0;
      UNROLL for (int i = 0; i < COLUMNS; i++) c.dot[h][s] += key[i] * rows[s][i];
    }
  }
  UNROLL for (int bit = 1; bit < LANES_PER_SLOT; bit *= 2) {
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) c.row[s].squared += from_lane(c.row[s].squared, bit);
    UNROLL for (int h = 0; h < COUNT; h++) {
      c.key[h].squared += from_lane(c.key[h].squared, bit);
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) c.dot[h][s] += from_lane(c.dot[h][s], bit);
    }
  }
  bool huge = false;
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) huge = huge || c.row[s].squared > HUGE_SQUARE;
  if (!KEY_TANH) UNROLL for (int h = 0; h < COUNT; h++) huge = huge || c.key[h].squared > HUGE_SQUARE;
  if (__any_sync(0xffffffffu, huge)) {
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) c.row[s] = scaled_norm(rows[s]);
    UNROLL for (int h = 0; h < COUNT; h++) {
      float key[COLUMNS];
      load_columns(key, keys + h * PADDED_WIDTH, at);
      c.key[h] = scaled_norm(key);
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
        float dot = 0;
        UNROLL for (int i = 0; i < COLUMNS; i++) dot += key[i] * c.key[h].scale * (rows[s][i] * c.row[s].scale);
        c.dot[h][s] = team_sum(dot);
      }
    }
  } else {
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) c.row[s].squared += NORM_EPSILON;
    UNROLL for (int h = 0; h < COUNT; h++) c.key[h].squared += NORM_EPSILON;
  }
  return c;
}

__device__ __forceinline__ float team_dot(const float (&a)[COLUMNS], const float (&b)[COLUMNS]) {
  float dot = 0;
  UNROLL for (int i = 0; i < COLUMNS; i++) dot += a[i] * b[i];
  return team_sum(dot);
}

// ---------------------------------------------------------------------------------------------- forward

namespace forward_pass {
using namespace forward_layout;

__device__ __forceinline__ bool healthy(float sum) { return sum > 1e-25f && sum < 1e30f; }

// A softmax whose sum was not healthy, again with its largest exponent taken off. Rare, so the barriers do not matter.
__device__ __noinline__ float softmax_with_maximum(const float* exponent, float* e, float* chain, const Place at) {
  float most = -3.4e38f;
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) most = at.active(s) ? fmaxf(most, exponent[s]) : most;
  most = slots_max(most);
  __syncthreads();
  if (threadIdx.x % 32 == 0) chain[at.warp] = most;
  __syncthreads();
  for (int w = 0; w < SLOT_WARPS; w++) most = fmaxf(most, chain[w]);
  __syncthreads();
  float sum = 0;
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) sum += e[s] = at.active(s) ? expf(exponent[s] - most) : 0.0f;
  sum = slots_sum(sum);
  if (threadIdx.x % 32 == 0) chain[at.warp] = sum;
  __syncthreads();
  sum = sum_of_warps(chain);
  __syncthreads();
  return sum;
}

// Through copies, so that the arrays of the usual path stay in registers.
__device__ __forceinline__ float softmax_again(const float (&exponent)[SLOTS_PER_THREAD], float (&e)[SLOTS_PER_THREAD], float* chain, const Place& at) {
  float from[SLOTS_PER_THREAD], to[SLOTS_PER_THREAD];
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) from[s] = exponent[s];
  const float sum = softmax_with_maximum(from, to, chain, at);
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) e[s] = to[s];
  return sum;
}

// Eqs. 5 to 9 for heads FIRST .. FIRST + COUNT on the memory in `rows`. The two callables
// are work that does not depend on any of it, for places where the threads would wait.
template <int FIRST, int COUNT, class First, class Second>
__device__ __forceinline__ void address(float* shared, const Rows& rows, float (&w)[COUNT][SLOTS_PER_THREAD], float4* records, const Place& at, const Neighbours& neighbours, First idle_first, Second idle_second) {
  float e[COUNT][SLOTS_PER_THREAD], exponent[COUNT][SLOTS_PER_THREAD];
  float content[COUNT][SLOTS_PER_THREAD], shifted[COUNT][SLOTS_PER_THREAD], before[COUNT][SLOTS_PER_THREAD];
  const bool teller = threadIdx.x % 32 == 0;
  if (at.works_ahead()) idle_first();
  if (at.has_slots()) {
    const Comparison<COUNT> c = compare<COUNT>(shared + KEYS + FIRST * PADDED_WIDTH, rows, at);
    UNROLL for (int h = 0; h < COUNT; h++) {
      const int head = FIRST + h;
      const float strength = shared[SCALARS + head * HEAD_SCALARS];
      float sum = 0;
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
        const float cosine = c.dot[h][s] * rsqrtf(c.row[s].squared * c.key[h].squared);
        exponent[h][s] = strength * cosine;
        sum += e[h][s] = at.active(s) ? expf(strength * (cosine - 1.0f)) : 0.0f;  // a cosine is at most one
        if (at.leader && at.active(s)) shared[EXPONENTIALS + head * UP4_TAPE + at.slot(s)] = e[h][s];
      }
      sum = slots_sum(sum);
      if (teller) shared[CHAIN_FIRST + head * WARPS + at.warp] = sum;
    }
  }
  if (!at.works_ahead()) idle_first();
  __syncthreads();
  if (at.works_ahead()) idle_second();
  UNROLL for (int h = 0; h < COUNT; h++) {
    const int head = FIRST + h;
    const float* scalars = shared + SCALARS + head * HEAD_SCALARS;
    float sum = sum_of_warps(shared + CHAIN_FIRST + head * WARPS);
    if (!healthy(sum)) {
      sum = softmax_again(exponent[h], e[h], shared + CHAIN_FIRST + head * WARPS, at);
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++)
        if (at.leader && at.active(s)) shared[EXPONENTIALS + head * UP4_TAPE + at.slot(s)] = e[h][s];
      __syncthreads();
    }
    if (!at.has_slots()) continue;
    const float gate = scalars[1], sharpening = scalars[2], inverse = quotient(1.0f, sum), of_content = gate * inverse;
    const float* exponentials = shared + EXPONENTIALS + head * UP4_TAPE;
    const float* previous = shared + PREVIOUS + head * UP4_TAPE;
    float again = 0;
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      content[h][s] = e[h][s] * inverse, shifted[h][s] = 0, before[h][s] = 0;
      if (at.active(s)) {
        UNROLL for (int j = 0; j < TAPS; j++) {
          const int from = neighbours(at, s, j);
          shifted[h][s] += scalars[4 + j] * (of_content * exponentials[from] + (1.0f - gate) * previous[from]);
        }
        before[h][s] = previous[at.slot(s)];
      }
      exponent[h][s] = sharpening * __logf(shifted[h][s] + SHARPEN_EPSILON);
      again += e[h][s] = at.active(s) ? expf(exponent[h][s]) : 0.0f;
    }
    again = slots_sum(again);
    if (teller) shared[CHAIN_SECOND + head * WARPS + at.warp] = again;
  }
  if (!at.works_ahead()) idle_second();
  __syncthreads();
  UNROLL for (int h = 0; h < COUNT; h++) {
    const int head = FIRST + h;
    float sum = sum_of_warps(shared + CHAIN_SECOND + head * WARPS);
    if (!healthy(sum)) sum = softmax_again(exponent[h], e[h], shared + CHAIN_SECOND + head * WARPS, at);
    if (!at.has_slots()) continue;
    const float inverse = quotient(1.0f, sum);
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      // On one slot e is the sum. e (1 / e) may miss 1 by a rounding, and then the gradient of w misses its exact zero.
      w[h][s] = at.slots == 1 && e[h][s] == sum ? 1.0f : e[h][s] * inverse;
      if (at.leader && at.active(s)) {
        shared[PREVIOUS + head * UP4_TAPE + at.slot(s)] = w[h][s];
        if (records) records[head * TAPE + at.slot(s)] = make_float4(content[h][s], shifted[h][s], w[h][s], before[h][s]);
      }
    }
  }
}

// Eqs. 3 and 4.
__device__ __forceinline__ void write(float* shared, Rows& rows, const float (&w)[WRITE_HEADS][SLOTS_PER_THREAD], const Place& at) {
  if (!at.has_slots()) return;
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
    float kept[COLUMNS], added[COLUMNS];
    UNROLL for (int i = 0; i < COLUMNS; i++) kept[i] = 1.0f, added[i] = 0.0f;
    UNROLL for (int h = 0; h < WRITE_HEADS; h++) {
      const float effective = WRITE_GATE ? shared[SCALARS + (READ_HEADS + h) * HEAD_SCALARS + 3] * w[h][s] : w[h][s];
      const float* erase = shared + ERASE + h * PADDED_WIDTH + at.first_column;
      const float* add = shared + ADD + h * PADDED_WIDTH + at.first_column;
      UNROLL for (int i = 0; i < COLUMNS; i++) {
        kept[i] *= 1.0f - effective * erase[i];
        added[i] += effective * add[i];
      }
    }
    UNROLL for (int i = 0; i < COLUMNS; i++)
      if (at.active(s)) rows[s][i] = rows[s][i] * kept[i] + added[i];
  }
}

// Eq. 2: partial sums of each warp's slots.
__device__ __forceinline__ void read(float* shared, const Rows& rows, const float (&w)[READ_HEADS][SLOTS_PER_THREAD], const Place& at) {
  if (!at.has_slots()) return;
  UNROLL for (int h = 0; h < READ_HEADS; h++) {
    float sums[COLUMNS];
    UNROLL for (int i = 0; i < COLUMNS; i++) {
      sums[i] = 0;
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) sums[i] += w[h][s] * rows[s][i];
    }
    float* target = shared + READ_PARTIALS + (at.warp * READ_HEADS + h) * PADDED_WIDTH + at.first_column;
    store_slot_sums(sums, target, true);
  }
}

struct Weights {
  Product_BELOW_FIRST below_first;
  Product_INTERFACE interface;
  Product_BELOW_UPPER below_upper[LAYERS > 1 ? LAYERS - 1 : 1];
  Product_RECURRENT recurrent[LSTM ? LAYERS : 1];
};
__device__ __forceinline__ float* recurrent_weights(float* shared, int layer) { return shared + WEIGHTS_RECURRENT + layer * Product_RECURRENT::WEIGHTS; }
__device__ __forceinline__ float* upper_weights(float* shared, int layer) { return shared + WEIGHTS_BELOW_UPPER + (layer - 1) * Product_BELOW_UPPER::WEIGHTS; }
__device__ __forceinline__ float* recurrent_vector(float* shared, int layer) { return shared + VECTOR_RECURRENT + layer * Product_RECURRENT::VECTOR; }
__device__ __forceinline__ float* upper_vector(float* shared, int layer) { return shared + VECTOR_BELOW_UPPER + (layer - 1) * Product_BELOW_UPPER::VECTOR; }
__device__ __forceinline__ const float4* recurrent_packed(const float4* packed, int layer) { return packed + PACKED_RECURRENT + layer * Product_RECURRENT::STREAMED * Product_RECURRENT::ACTIVE; }
__device__ __forceinline__ const float4* upper_packed(const float4* packed, int layer) { return packed + PACKED_BELOW_UPPER + (layer - 1) * Product_BELOW_UPPER::STREAMED * Product_BELOW_UPPER::ACTIVE; }

// A unit's new hidden value, to all who will read it.
__device__ __forceinline__ void spread_hidden(float* shared, int layer, int unit, float hidden) {
  if (LSTM) recurrent_vector(shared, layer)[Product_RECURRENT::position(unit)] = hidden;
  if (layer + 1 < LAYERS) upper_vector(shared, layer + 1)[Product_BELOW_UPPER::position(unit)] = hidden;
  else shared[VECTOR_INTERFACE + Product_INTERFACE::position(unit)] = hidden;
}

// One layer's units, from the partial sums of its gates.
__device__ __forceinline__ void units(float* shared, int layer, int t, const Kept& kept, bool keep) {
  for (int unit = threadIdx.x; unit < UNITS; unit += THREADS) {
    float hidden;
    if (LSTM) {
      const float4 raw = Product_RECURRENT::total_of_group(shared + PARTIALS, unit);
      const float i = sigmoid(raw.x), f = sigmoid(raw.y), g = hyperbolic_tangent(raw.z), o = sigmoid(raw.w);
      float& cell = shared[CELL + layer * UNITS + unit];
      const float next = f * cell + i * g;
      cell = next;
      hidden = o * hyperbolic_tangent(next);
      if (keep) {
        ((float4*)kept.gates(t, layer))[unit] = make_float4(i, f, g, o);
        kept.cells(t, layer)[unit] = next;
      }
    } else {
      hidden = hyperbolic_tangent(layer == 0 ? Product_BELOW_FIRST::total(shared + PARTIALS, unit) : Product_BELOW_UPPER::total(shared + PARTIALS, unit));
    }
    spread_hidden(shared, layer, unit, hidden);
    kept.before(t + 1)[READS + layer * UNITS + unit] = hidden;
  }
}

__device__ __forceinline__ void load_weights(Weights& weights, const float* p, float* shared) {
  weights.below_first.load_rows_together(BelowWeight{p, 0}, shared + WEIGHTS_BELOW_FIRST);
  weights.interface.load_rows_together(InterfaceWeight{p}, shared + WEIGHTS_INTERFACE);
  UNROLL for (int layer = 1; layer < LAYERS; layer++) weights.below_upper[layer - 1].load_rows_together(BelowWeight{p, layer}, upper_weights(shared, layer));
  if constexpr (LSTM) UNROLL for (int layer = 0; layer < LAYERS; layer++) weights.recurrent[layer].load_rows_together(RecurrentWeight{p, layer}, recurrent_weights(shared, layer));
  wait_for_copies();
}

__device__ __forceinline__ void run(const Arguments& a, Weights& weights, float* shared, long long sequence) {
  const Place at = place_of(a, sequence);
  const int thread = threadIdx.x;
  const float4* packed = a.packed + (long long)at.seed * PACKED_TOTAL;
  const Kept kept{a.kept + sequence * a.kept_size, a.steps};
  Rows rows;
  load_memory(rows, a.initial.memory, at);
  for (int i = thread; i < HEADS * TAPE; i += THREADS) {
    const int head = i / TAPE, slot = i % TAPE;
    shared[PREVIOUS + head * UP4_TAPE + slot] = head < READ_HEADS ? a.initial.read_weightings[(sequence * READ_HEADS + head) * TAPE + slot]
                                                                  : a.initial.write_weightings[(sequence * WRITE_HEADS + head - READ_HEADS) * TAPE + slot];
  }
  for (int i = thread; i < READS; i += THREADS) {
    const float value = a.initial.reads[sequence * READS + i];
    shared[VECTOR_BELOW_FIRST + Product_BELOW_FIRST::position(INPUTS + i)] = value;
    kept.before(0)[i] = value;
  }
  if (LSTM) {
    for (int i = thread; i < LAYERS * UNITS; i += THREADS) {
      const float hidden = a.initial.hidden[sequence * LAYERS * UNITS + i];
      recurrent_vector(shared, i / UNITS)[Product_RECURRENT::position(i % UNITS)] = hidden;
      kept.before(0)[READS + i] = hidden;
      shared[CELL + i] = a.initial.cell[sequence * LAYERS * UNITS + i];
    }
  }
  const Neighbours neighbours(at);
  OwnEntry entries[ENTRIES];
  UNROLL for (int i = 0; i < ENTRIES; i++) entries[i] = own_entry(entry_here(i), KEYS, ERASE, ADD, SCALARS);
  const float* input = a.inputs + ((long long)at.seed * a.steps * a.batch + at.row) * INPUTS;
  if (thread < INPUTS && at.length > 0) shared[VECTOR_BELOW_FIRST + Product_BELOW_FIRST::position(thread)] = input[thread];
  __syncthreads();
  float4 gates[LSTM ? LAYERS : 1];  // partial sums for the next step
  auto background = [&](auto piece) {
    if constexpr (LSTM) {
      UNROLL for (int layer = 0; layer < LAYERS; layer++) {
        if (piece.index == 0) gates[layer] = make_float4(0, 0, 0, 0);
        weights.recurrent[layer].template piece<decltype(piece)::index, 4>(gates[layer], recurrent_vector(shared, layer), recurrent_weights(shared, layer), recurrent_packed(packed, layer));
      }
    }
  };
  background(Piece<0>{});
  background(Piece<1>{});
  background(Piece<2>{});
  background(Piece<3>{});
  for (int t = 0; t < at.length; t++) {
    input += (long long)a.batch * INPUTS;
    const float next_input = thread < INPUTS && t + 1 < at.length ? input[thread] : 0.0f;
    UNROLL for (int layer = 0; layer < LAYERS; layer++) {
      float4 sum = LSTM ? gates[LSTM ? layer : 0] : make_float4(0, 0, 0, 0);
      if (layer == 0) {
        weights.below_first.template piece<0, 1>(sum, shared + VECTOR_BELOW_FIRST, shared + WEIGHTS_BELOW_FIRST, packed + PACKED_BELOW_FIRST);
        weights.below_first.store(sum, shared + PARTIALS);
      } else {
        const Product_BELOW_UPPER& product = weights.below_upper[layer > 0 ? layer - 1 : 0];
        product.template piece<0, 1>(sum, upper_vector(shared, layer), upper_weights(shared, layer), upper_packed(packed, layer));
        product.store(sum, shared + PARTIALS);
      }
      __syncthreads();
      units(shared, layer, t, kept, a.keep);
      __syncthreads();
    }
    {
      float4 sum = make_float4(0, 0, 0, 0);
      weights.interface.template piece<0, 1>(sum, shared + VECTOR_INTERFACE, shared + WEIGHTS_INTERFACE, packed + PACKED_INTERFACE);
      weights.interface.store(sum, shared + PARTIALS);
    }
    __syncthreads();
    UNROLL for (int i = 0; i < ENTRIES; i++) {
      const int o = entries[i].output;
      const float raw = Product_INTERFACE::total(shared + PARTIALS, max(o, 0)), in_range = clipped(raw);
      float softmax = 0;
      if (SHIFT_SOFTMAX && entries[i].taps_in_warp) {  // against the other taps
        float taps[TAPS], most = in_range, sum = 0;
        UNROLL for (int j = 0; j < TAPS; j++) most = fmaxf(most, taps[j] = __shfl_sync(0xffffffffu, in_range, entries[i].first_lane + j));
        UNROLL for (int j = 0; j < TAPS; j++) sum += expf(taps[j] - most);
        softmax = quotient(expf(in_range - most), sum);
      }
      if (o >= 0) {
        float asked = activate(entries[i].kind, in_range);
        if (entries[i].kind == SHIFT_WEIGHT) {
          if (SHIFT_SOFTMAX) asked = softmax;
          else UNROLL for (int j = 0; j < TAPS; j++) shared[entries[i].place + j] = scalar_shift_weight(in_range, j);
        }
        if (SHIFT_SOFTMAX || entries[i].kind != SHIFT_WEIGHT) shared[entries[i].place] = asked;
        if (a.keep) {
          kept.raw(t)[o] = raw;
          kept.asked(t)[o] = asked;
        }
      }
    }
    if (thread < INPUTS) shared[VECTOR_BELOW_FIRST + Product_BELOW_FIRST::position(thread)] = next_input;
    __syncthreads();
    float4* records = a.keep ? kept.records(t) : nullptr;
    float write_weights[WRITE_HEADS][SLOTS_PER_THREAD], read_weights[READ_HEADS][SLOTS_PER_THREAD];
    if constexpr (WRITE_FIRST) {
      address<READ_HEADS, WRITE_HEADS>(shared, rows, write_weights, records, at, neighbours, [&] { background(Piece<0>{}); }, [&] { background(Piece<1>{}); });
      write(shared, rows, write_weights, at);
      address<0, READ_HEADS>(shared, rows, read_weights, records, at, neighbours, [&] { background(Piece<2>{}); }, [&] { background(Piece<3>{}); });
      read(shared, rows, read_weights, at);
    } else {
      float all[HEADS][SLOTS_PER_THREAD];
      address<0, HEADS>(
          shared, rows, all, records, at, neighbours,
          [&] { background(Piece<0>{}), background(Piece<1>{}); }, [&] { background(Piece<2>{}), background(Piece<3>{}); });
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
        UNROLL for (int h = 0; h < READ_HEADS; h++) read_weights[h][s] = all[h][s];
        UNROLL for (int h = 0; h < WRITE_HEADS; h++) write_weights[h][s] = all[READ_HEADS + h][s];
      }
      read(shared, rows, read_weights, at);
      write(shared, rows, write_weights, at);
    }
    if (a.keep && at.has_slots()) {
      float* tape = kept.tape(t) + thread;
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++)
        UNROLL for (int i = 0; i < COLUMNS; i++) tape[(s * COLUMNS + i) * SLOT_THREADS] = rows[s][i];
    }
    __syncthreads();
    for (int i = thread; i < READS; i += THREADS) {
      const float* partials = shared + READ_PARTIALS + i / WIDTH * PADDED_WIDTH + i % WIDTH;
      const float value = sum_of_strided<SLOT_WARPS>(partials, READ_HEADS * PADDED_WIDTH);
      shared[VECTOR_BELOW_FIRST + Product_BELOW_FIRST::position(INPUTS + i)] = value;
      kept.before(t + 1)[i] = value;
    }
    __syncthreads();
  }
  if (a.final.memory) {
    store_memory(rows, a.final.memory, a.initial.memory, at);
    for (int i = thread; i < HEADS * TAPE; i += THREADS) {  // unused slots were loaded and never written
      const int head = i / TAPE, slot = i % TAPE;
      (head < READ_HEADS ? a.final.read_weightings[(sequence * READ_HEADS + head) * TAPE + slot]
                         : a.final.write_weightings[(sequence * WRITE_HEADS + head - READ_HEADS) * TAPE + slot]) = shared[PREVIOUS + head * UP4_TAPE + slot];
    }
    for (int i = thread; i < READS; i += THREADS) a.final.reads[sequence * READS + i] = kept.before(at.length)[i];
    if (LSTM) {
      for (int i = thread; i < LAYERS * UNITS; i += THREADS) {
        a.final.hidden[sequence * LAYERS * UNITS + i] = kept.before(at.length)[READS + i];
        a.final.cell[sequence * LAYERS * UNITS + i] = shared[CELL + i];
      }
    }
  }
}
}  // namespace forward_pass

extern "C" __global__ void __launch_bounds__(THREADS, 1) ntm_forward(const __grid_constant__ Arguments a) {
  using namespace forward_pass;
  float* shared = (float*)shared_memory;
  for (int i = threadIdx.x; i < WEIGHTS_BELOW_FIRST; i += THREADS) shared[i] = 0.0f;  // the working set
  __syncthreads();
  if (threadIdx.x == 0) {
    shared[VECTOR_BELOW_FIRST + Product_BELOW_FIRST::position(INPUTS + READS)] = 1.0f;
    for (int layer = 1; layer < LAYERS; layer++) upper_vector(shared, layer)[Product_BELOW_UPPER::position(UNITS)] = 1.0f;
    shared[VECTOR_INTERFACE + Product_INTERFACE::position(UNITS)] = 1.0f;
  }
  Weights weights;
  int loaded = -1;
  for (long long sequence = blockIdx.x; sequence < (long long)a.seeds * a.batch; sequence += gridDim.x) {
    const int seed = sequence / a.batch;
    if (seed != loaded) load_weights(weights, a.parameters + (long long)seed * PARAMETERS, shared);
    loaded = seed;
    run(a, weights, shared, sequence);
    __syncthreads();
  }
}

extern "C" __global__ void ntm_pack_forward(const __grid_constant__ Arguments a) {
  using namespace forward_pass;
  const float* p = a.parameters + (long long)blockIdx.y * PARAMETERS;
  float4* packed = (float4*)a.packed + (long long)blockIdx.y * PACKED_TOTAL;
  Product_BELOW_FIRST::pack(BelowWeight{p, 0}, packed + PACKED_BELOW_FIRST);
  Product_INTERFACE::pack(InterfaceWeight{p}, packed + PACKED_INTERFACE);
  for (int layer = 1; layer < LAYERS; layer++) Product_BELOW_UPPER::pack(BelowWeight{p, layer}, (float4*)upper_packed(packed, layer));
  if (LSTM) for (int layer = 0; layer < LAYERS; layer++) Product_RECURRENT::pack(RecurrentWeight{p, layer}, (float4*)recurrent_packed(packed, layer));
}

// ---------------------------------------------------------------------------------------------- output layer

// Between the two passes, for all steps at once: a warp takes a pair of steps, its lanes the values that the layer sees.
constexpr int OUTPUT_GROUP = OUTPUTS < 8 ? OUTPUTS : 8, PAIR = 2;

struct OfStep {
  int t;
  long long step;       // (seed, t, row of the batch) as one index
  const float* row;     // what was kept after it
  bool there, inside;   // of the steps given; of the sequence
};

// The categorical cost of a step whose logits stand in d_outputs and become gradients there, and in `few` if they fit: a
// whole warp for one step. Logits count from the largest one, whose exponential of one is left out of the sum, so that
// the logarithm has all its digits where the machine is sure of its answer. Each lane returns its own share of the cost.
__device__ __forceinline__ float categorical_cost(const Arguments& a, const OfStep& at, float* few) {
  const int lane = threadIdx.x % 32;
  const bool counts = a.mask[at.step] != 0.0f;
  float* logits = a.d_outputs + at.step * OUTPUTS;
  const float* targets = a.targets + at.step * OUTPUTS;
  float top = __int_as_float(0xff800000);  // minus infinity
  int first = OUTPUTS;  // the first of the largest
  for (int o = lane; o < OUTPUTS; o += 32) if (logits[o] > top) top = logits[o], first = o;
  UNROLL for (int bit = 1; bit < 32; bit *= 2) {
    const float other = from_lane(top, bit);
    const int other_first = __shfl_xor_sync(0xffffffffu, first, bit);
    if (other > top || (other == top && other_first < first)) top = other, first = other_first;
  }
  float rest = 0, weight = 0, below = 0;
  for (int o = lane; o < OUTPUTS; o += 32) {
    const float x = logits[o] - top;
    rest += o == first ? x : expf(x);  // x is zero there, or NaN
    weight += targets[o];
    below -= targets[o] * x;
  }
  const float own_weight = weight;
  UNROLL for (int bit = 1; bit < 32; bit *= 2) rest += from_lane(rest, bit), weight += from_lane(weight, bit);
  const float scale = weight / (1.0f + rest);
  for (int o = lane; o < OUTPUTS; o += 32) {
    const float slope = counts && at.inside ? (expf(logits[o] - top) * scale - targets[o]) / a.batch : 0.0f;
    logits[o] = slope;
    if (OUTPUTS <= OUTPUT_GROUP) few[o] = slope;
  }
  return counts ? own_weight * log_one_plus(rest) + below : 0.0f;
}

// Logits of two steps and, where there are targets, their cost and the gradient of that, which is left in `few` for the
// last group of outputs. Eight at a time.
// The categorical loss needs all logits of a step: it finds them where its gradients will be.
__device__ __forceinline__ float outputs_of_steps(const Arguments& a, const OfStep (&at)[PAIR], const float* parameters, float (*few)[OUTPUT_GROUP]) {
  const float *weight = parameters + OUTPUT_WEIGHT, *bias = parameters + OUTPUT_BIAS;
  const int lane = threadIdx.x % 32;
  float cost = 0, costs[PAIR] = {0, 0};
  for (int first = 0; first < OUTPUTS; first += OUTPUT_GROUP) {
    const int o = first + lane;
    const bool mine = lane < OUTPUT_GROUP && o < OUTPUTS;
    const float offset = mine ? bias[o] : 0.0f;
    bool counts[PAIR];
    float target[PAIR], sums[PAIR][OUTPUT_GROUP];
    UNROLL for (int p = 0; p < PAIR; p++) {
      counts[p] = mine && a.targets && a.mask[at[p].step] != 0.0f;
      target[p] = mine && a.targets ? a.targets[at[p].step * OUTPUTS + o] : 0.0f;
      UNROLL for (int i = 0; i < OUTPUT_GROUP; i++) sums[p][i] = 0;
    }
#pragma unroll 4
    for (int k = lane; k < OUTPUT_WIDTH; k += 32) {
      float value[PAIR];
      const int from = k < UNITS ? READS + (LAYERS - 1) * UNITS + k : k - UNITS;
      UNROLL for (int p = 0; p < PAIR; p++) value[p] = at[p].inside ? at[p].row[from] : 0.0f;  // nothing is kept past the end
      UNROLL for (int i = 0; i < OUTPUT_GROUP; i++) {
        const float w = __ldg(weight + min(first + i, OUTPUTS - 1) * OUTPUT_WIDTH + k);
        UNROLL for (int p = 0; p < PAIR; p++) sums[p][i] += value[p] * w;
      }
    }
    UNROLL for (int p = 0; p < PAIR; p++) fold<OUTPUT_GROUP, 16, 1>(sums[p], lane, 0, OUTPUT_GROUP, few[p], true);
    __syncwarp();
    UNROLL for (int p = 0; p < PAIR; p++) {
      if (!mine || !at[p].there) continue;
      float slope = 0;
      const float logit = at[p].inside ? few[p][lane] + offset : 0.0f;
      if (a.loss == CATEGORICAL) {
        slope = logit;
      } else if (counts[p]) {  // past the sequence's end, too: a logit of zero costs one bit
        costs[p] += fmaxf(logit, 0.0f) - logit * target[p] + log_one_plus(expf(-fabsf(logit)));
        if (at[p].inside) slope = (sigmoid(logit) - target[p]) / a.batch;
      }
      if (a.outputs) a.outputs[at[p].step * OUTPUTS + o] = logit;
      if (a.targets) a.d_outputs[at[p].step * OUTPUTS + o] = few[p][lane] = slope;
    }
    __syncwarp();
  }
  if (a.targets && a.loss == CATEGORICAL) {
    UNROLL for (int p = 0; p < PAIR; p++) if (at[p].there) costs[p] = categorical_cost(a, at[p], few[p]);
    __syncwarp();
  }
  UNROLL for (int p = 0; p < PAIR; p++) cost += costs[p];
  return cost;
}

// From d_outputs to the gradient of what the layer saw, [hidden, reads].
__device__ __forceinline__ void through_outputs(const Arguments& a, const OfStep (&at)[PAIR], const float* weight, const float (*few)[OUTPUT_GROUP]) {
  const bool at_hand = a.targets && OUTPUTS <= OUTPUT_GROUP;
  const float* d_output[PAIR];
  UNROLL for (int p = 0; p < PAIR; p++) d_output[p] = at_hand ? few[p] : a.d_outputs + at[p].step * OUTPUTS;
  for (int k = threadIdx.x % 32; k < OUTPUT_WIDTH; k += 32) {
    float sums[PAIR] = {0, 0};
#pragma unroll 8
    for (int o = 0; o < OUTPUTS; o++) {
      const float w = __ldg(weight + o * OUTPUT_WIDTH + k);
      UNROLL for (int p = 0; p < PAIR; p++) sums[p] += d_output[p][o] * w;
    }
    UNROLL for (int p = 0; p < PAIR; p++) {
      if (at[p].inside) a.d_rows[((long long)blockIdx.x * a.steps + at[p].t) * GRADIENT_WIDTH + SEEN + k] = sums[p];
    }
  }
}

// A block per sequence. What is computed follows from what is asked for: `outputs` or `targets` the logits, `d_rows` the
// gradient.
extern "C" __global__ void __launch_bounds__(1024, 1) ntm_outputs(const __grid_constant__ Arguments a) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int seed = blockIdx.x / a.batch, row = blockIdx.x % a.batch;
  const int length = min(max((int)a.lengths[blockIdx.x], 0), a.steps);
  const Kept kept{a.kept + blockIdx.x * a.kept_size, a.steps};
  const float* parameters = a.parameters + (long long)seed * PARAMETERS;
  float(*few)[OUTPUT_GROUP] = (float(*)[OUTPUT_GROUP])((float*)shared_memory + warp * PAIR * OUTPUT_GROUP);
  float cost = 0;
  for (int first = PAIR * warp; first < a.steps; first += PAIR * warps) {
    OfStep at[PAIR];
    UNROLL for (int p = 0; p < PAIR; p++) {
      const int t = first + p, there = min(t, a.steps - 1);
      at[p] = {t, ((long long)seed * a.steps + there) * a.batch + row, kept.before(there + 1), t < a.steps, t < length};
    }
    if (a.outputs || a.targets) cost += outputs_of_steps(a, at, parameters, few);
    if (a.d_rows) through_outputs(a, at, parameters + OUTPUT_WEIGHT, few);
    __syncwarp();  // before the next steps' numbers come into `few`
  }
  if (!a.targets) return;
  UNROLL for (int bit = 1; bit < 32; bit *= 2) cost += from_lane(cost, bit);
  __syncthreads();
  if (lane == 0) ((float*)shared_memory)[warp] = cost;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int w = 0; w < warps; w++) sum += ((float*)shared_memory)[w];
    a.costs[blockIdx.x] = sum;
  }
}

// ---------------------------------------------------------------------------------------------- backward

namespace backward_pass {
using namespace backward_layout;

// Sums over the slots that the gradients of a head's interface entries need, per warp: key columns, then these, then
// one for each tap and, for a write head, erase and add columns.
enum HeadSums { SUM_STRENGTH, SUM_CONTENT, SUM_COSINE, SUM_WRITE_GATE, SUM_PREVIOUS, SUM_SHARPENING, SUM_TAPS };
constexpr int ALL_SUMS = READ_HEADS * READ_SUMS + WRITE_HEADS * WRITE_SUMS;
__device__ __forceinline__ constexpr int sums_of(int head) {
  return head < READ_HEADS ? head * READ_SUMS : READ_HEADS * READ_SUMS + (head - READ_HEADS) * WRITE_SUMS;
}
constexpr int ERASE_SUMS = PADDED_WIDTH + 6 + TAPS, ADD_SUMS = ERASE_SUMS + PADDED_WIDTH;

using Records = float4[HEADS][SLOTS_PER_THREAD];  // content, shifted, new and previous weight

// From the gradients `d_w` of the new weightings of heads FIRST .. FIRST + COUNT to those of the previous weightings
// (left in `d_w`), of the memory they looked at (added to d_rows), and the sums for their interface entries.
template <int FIRST, int COUNT, class First, class Second, class Third>
__device__ __forceinline__ void address(float* shared, const Rows& rows, Rows& d_rows, const Records& records, float (*d_w)[SLOTS_PER_THREAD], const Place& at, const Neighbours& neighbours, First idle_first, Second idle_second, Third idle_third) {
  const bool teller = threadIdx.x % 32 == 0;
  float* warp_sums = shared + SUMS + at.warp * ALL_SUMS;
  if (at.works_ahead()) idle_first();
  if (at.has_slots()) {
    UNROLL for (int h = 0; h < COUNT; h++) {
      float sum = 0;
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) sum += records[FIRST + h][s].z * d_w[h][s];
      sum = slots_sum(sum);
      if (teller) shared[CHAIN_FIRST + (FIRST + h) * WARPS + at.warp] = sum;
    }
  }
  if (!at.works_ahead()) idle_first();
  __syncthreads();
  if (at.works_ahead()) idle_second();
  // Eq. 9: w = softmax(gamma log(shifted + epsilon))
  float d_shifted[COUNT][SLOTS_PER_THREAD], sharpening_sum[COUNT];
  UNROLL for (int h = 0; h < COUNT; h++) {
    if (!at.has_slots()) break;
    const int head = FIRST + h;
    const float mean = sum_of_warps(shared + CHAIN_FIRST + head * WARPS), sharpening = shared[SCALARS + head * HEAD_SCALARS + 2];
    sharpening_sum[h] = 0;
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      const float4 r = records[head][s];
      const float d_exponent = r.z * (d_w[h][s] - mean), shifted = r.y + SHARPEN_EPSILON;
      d_shifted[h][s] = quotient(d_exponent * sharpening, shifted);
      if (at.leader && at.active(s)) shared[D_SHIFTED + head * UP4_TAPE + at.slot(s)] = d_shifted[h][s];
      sharpening_sum[h] += at.active(s) ? d_exponent * __logf(shifted) : 0.0f;
    }
  }
  if (!at.works_ahead()) idle_second();
  __syncthreads();
  if (at.works_ahead()) idle_third();
  // Eqs. 7 and 8. Also the cosines again, for below.
  float d_gated[COUNT][SLOTS_PER_THREAD], cosine[COUNT][SLOTS_PER_THREAD], inverse[COUNT][SLOTS_PER_THREAD];
  Norm row[SLOTS_PER_THREAD];
  if (at.has_slots()) {
    const Comparison<COUNT> c = compare<COUNT>(shared + KEYS + FIRST * PADDED_WIDTH, rows, at);
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) row[s] = c.row[s];
    UNROLL for (int h = 0; h < COUNT; h++) {
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
        const float of_norms = rsqrtf(c.row[s].squared * c.key[h].squared);
        inverse[h][s] = c.key[h].scale * of_norms;
        cosine[h][s] = c.dot[h][s] * of_norms;
      }
      if (threadIdx.x == 0) {
        shared[KEY_NORMS + 2 * (FIRST + h)] = c.key[h].scale;
        shared[KEY_NORMS + 2 * (FIRST + h) + 1] = c.key[h].squared;
      }
    }
  }
  UNROLL for (int h = 0; h < COUNT; h++) {
    if (!at.has_slots()) break;
    const int head = FIRST + h;
    const float* scalars = shared + SCALARS + head * HEAD_SCALARS;
    const float gate = scalars[1];
    float sums[SUM_TAPS + TAPS];
    UNROLL for (int j = 0; j < SUM_TAPS + TAPS; j++) sums[j] = 0;
    sums[SUM_SHARPENING] = sharpening_sum[h];
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      const float4 r = records[head][s];
      const float gated = gate * r.x + (1.0f - gate) * r.w;
      d_gated[h][s] = 0;
      if (at.active(s)) {
        UNROLL for (int j = 0; j < TAPS; j++) {
          const float d = shared[D_SHIFTED + head * UP4_TAPE + neighbours(at, s, TAPS - 1 - j)];
          d_gated[h][s] += scalars[4 + j] * d;
          sums[SUM_TAPS + j] += gated * d;
        }
      }
      sums[SUM_CONTENT] += r.x * d_gated[h][s];
      sums[SUM_PREVIOUS] += r.w * d_gated[h][s];
    }
    const float content = slots_sum(sums[SUM_CONTENT]);
    if (teller) shared[CHAIN_SECOND + head * WARPS + at.warp] = content;
    store_slot_sums(*(float(*)[SUM_TAPS + TAPS - SUM_PREVIOUS])(sums + SUM_PREVIOUS), warp_sums + sums_of(head) + PADDED_WIDTH + SUM_PREVIOUS, at.leader);
  }
  if (!at.works_ahead()) idle_third();
  __syncthreads();
  // Eqs. 5 and 6. With k~, m~ the scaled key and row: d cosine / d m~ = k~ / (|k~| |m~|) - cosine m~ / |m~|^2. With one
  // column this is k~ / (|k~| |m~|) epsilon / |m~|^2: the difference would be the rounding of its terms, over |m~|.
  UNROLL for (int h = 0; h < COUNT; h++) {
    if (!at.has_slots()) break;
    const int head = FIRST + h;
    const float* scalars = shared + SCALARS + head * HEAD_SCALARS;
    const float strength = scalars[0], gate = scalars[1], content = sum_of_warps(shared + CHAIN_SECOND + head * WARPS);
    float key[COLUMNS], key_sums[COLUMNS], sums[2] = {0, 0};
    load_columns(key, shared + KEYS + head * PADDED_WIDTH, at);
    UNROLL for (int i = 0; i < COLUMNS; i++) key_sums[i] = 0;
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      const float d_exponent = gate * records[head][s].x * (d_gated[h][s] - content), d_cosine = strength * d_exponent;
      const float along = d_cosine * inverse[h][s] * row[s].scale;
      const float against = quotient(d_cosine * cosine[h][s] * row[s].scale * row[s].scale, row[s].squared);
      sums[0] += d_exponent * cosine[h][s];
      sums[1] += d_cosine * cosine[h][s];
      UNROLL for (int i = 0; i < COLUMNS; i++) {
        key_sums[i] += along * rows[s][i];
        d_rows[s][i] += WIDTH == 1 ? along * quotient(NORM_EPSILON, row[s].squared) * key[i] : along * key[i] - against * rows[s][i];
      }
      d_w[h][s] = (1.0f - gate) * d_gated[h][s];
    }
    float* target = warp_sums + sums_of(head);
    store_slot_sums(key_sums, target + at.first_column, true);
    sums[0] = slots_sum(sums[0]);
    sums[1] = slots_sum(sums[1]);
    if (teller) {
      target[PADDED_WIDTH + SUM_STRENGTH] = sums[0];
      target[PADDED_WIDTH + SUM_COSINE] = sums[1];
    }
  }
}

// Eq. 2: reads = w . rows
__device__ __forceinline__ void read(float* shared, const Rows& rows, Rows& d_rows, const Records& records, float (&d_w)[HEADS][SLOTS_PER_THREAD], const Place& at) {
  if (!at.has_slots()) return;
  UNROLL for (int h = 0; h < READ_HEADS; h++) {
    float d_read[COLUMNS];
    load_columns(d_read, shared + D_READS + h * PADDED_WIDTH, at);
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      d_w[h][s] += team_dot(d_read, rows[s]);
      UNROLL for (int i = 0; i < COLUMNS; i++) d_rows[s][i] += records[h][s].z * d_read[i];
    }
  }
}

// Eqs. 3 and 4: after = before prod_h (1 - w_h e_h) + sum_h w_h a_h. Turns d_rows from after to before.
__device__ __forceinline__ void write(float* shared, const Rows& before, Rows& d_rows, const Records& records, float (&d_w)[HEADS][SLOTS_PER_THREAD], const Place& at) {
  if (!at.has_slots()) return;
  UNROLL for (int h = 0; h < WRITE_HEADS; h++) {
    float erase[COLUMNS], add[COLUMNS], erase_sums[COLUMNS], add_sums[COLUMNS], gate_sum = 0;
    load_columns(erase, shared + ERASE + h * PADDED_WIDTH, at);
    load_columns(add, shared + ADD + h * PADDED_WIDTH, at);
    UNROLL for (int i = 0; i < COLUMNS; i++) erase_sums[i] = add_sums[i] = 0;
    const float gate = WRITE_GATE ? shared[SCALARS + (READ_HEADS + h) * HEAD_SCALARS + 3] : 1.0f;
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      const float w = records[READ_HEADS + h][s].z, effective = gate * w;
      float d_effective = 0;
      UNROLL for (int i = 0; i < COLUMNS; i++) {
        float others = before[s][i] * d_rows[s][i];
        UNROLL for (int o = 0; o < WRITE_HEADS; o++) {
          if (o == h) continue;
          const float other_gate = WRITE_GATE ? shared[SCALARS + (READ_HEADS + o) * HEAD_SCALARS + 3] : 1.0f;
          others *= 1.0f - other_gate * records[READ_HEADS + o][s].z * shared[ERASE + o * PADDED_WIDTH + at.first_column + i];
        }
        d_effective += d_rows[s][i] * add[i] - others * erase[i];
        erase_sums[i] -= others * effective;
        add_sums[i] += d_rows[s][i] * effective;
      }
      d_effective = team_sum(d_effective);
      d_w[READ_HEADS + h][s] += gate * d_effective;
      gate_sum += d_effective * w;
    }
    float* target = shared + SUMS + at.warp * ALL_SUMS + sums_of(READ_HEADS + h);
    store_slot_sums(erase_sums, target + ERASE_SUMS + at.first_column, true);
    store_slot_sums(add_sums, target + ADD_SUMS + at.first_column, true);
    if (WRITE_GATE) {
      gate_sum = slots_sum(gate_sum);
      if (threadIdx.x % 32 == 0) target[PADDED_WIDTH + SUM_WRITE_GATE] = gate_sum;
    }
  }
  UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
    UNROLL for (int i = 0; i < COLUMNS; i++) {
      UNROLL for (int h = 0; h < WRITE_HEADS; h++) {
        const float gate = WRITE_GATE ? shared[SCALARS + (READ_HEADS + h) * HEAD_SCALARS + 3] : 1.0f;
        d_rows[s][i] *= 1.0f - gate * records[READ_HEADS + h][s].z * shared[ERASE + h * PADDED_WIDTH + at.first_column + i];
      }
    }
  }
}

__device__ __forceinline__ float all_warps(const float* shared, int index) {
  return sum_of_strided<SLOT_WARPS>(shared + SUMS + index, ALL_SUMS);
}

// Which sums the gradient of an interface entry is made of; settled once per sequence.
struct EntryGradient {
  Field field;
  int head, sum;  // the sum over the slots that is its own
};
__device__ __forceinline__ EntryGradient entry_gradient(int o) {
  const Entry e = entry_of(max(o, 0));
  const int scalar_sums = sums_of(e.head) + PADDED_WIDTH;
  int sum = sums_of(e.head) + e.index;  // KEY
  switch (e.field) {
    case KEY: break;
    case STRENGTH: sum = scalar_sums + SUM_STRENGTH; break;
    case GATE: sum = scalar_sums + SUM_PREVIOUS; break;
    case SHIFT: sum = scalar_sums + SUM_TAPS + e.index; break;
    case SHARPENING: sum = scalar_sums + SUM_SHARPENING; break;
    case ERASE_: sum += ERASE_SUMS; break;
    case ADD_: sum += ADD_SUMS; break;
    default: sum = scalar_sums + SUM_WRITE_GATE;
  }
  return EntryGradient{e.field, e.head, sum};
}

// The gradient of one raw interface entry, whose value after the activation is `asked`.
__device__ __forceinline__ float d_interface_entry(const float* shared, EntryGradient e, Activation kind, float raw, float asked) {
  const float* scalars = shared + SCALARS + e.head * HEAD_SCALARS;
  const int scalar_sums = sums_of(e.head) + PADDED_WIDTH;
  float d = all_warps(shared, e.sum);
  if (e.field == KEY) {  // the key's scale is in the sums of the columns already
    const float key = asked, scale = shared[KEY_NORMS + 2 * e.head], squared = shared[KEY_NORMS + 2 * e.head + 1];
    if (WIDTH == 1) d *= quotient(NORM_EPSILON, squared);
    else d -= quotient(all_warps(shared, scalar_sums + SUM_COSINE), squared) * scale * scale * key;
  } else if (e.field == GATE || (SHIFT_SOFTMAX && e.field == SHIFT)) {
    const float content = sum_of_warps(shared + CHAIN_SECOND + e.head * WARPS);
    if (e.field == GATE) d = content - d;
    // softmax: minus the mean over the taps, which is the sum of gated weight times its gradient
    else d = asked * (d - (scalars[1] * content + (1.0f - scalars[1]) * all_warps(shared, scalar_sums + SUM_PREVIOUS)));
  } else if (!SHIFT_SOFTMAX && e.field == SHIFT) {
    const float turn = hyperbolic_tangent(clipped(raw)), whole = floorf(SHIFT_RANGE * turn);
    d = 0;
    UNROLL for (int j = 0; j < TAPS; j++) {
      const float offset = j - SHIFT_RANGE, d_tap = all_warps(shared, scalar_sums + SUM_TAPS + j);
      d += offset == whole ? -d_tap : offset == whole + 1.0f ? d_tap : 0.0f * d_tap;
    }
    d *= SHIFT_RANGE * (1.0f - turn * turn);
  }
  const float slope = kind == TANH ? 1.0f - asked * asked : kind == SIGMOID ? asked * (1.0f - asked)
                    : kind == SOFTPLUS || kind == ONE_PLUS_SOFTPLUS ? sigmoid(clipped(raw)) : 1.0f;
  return CLIP && (raw < -CLIP_AT || raw > CLIP_AT) ? 0.0f : d * slope;
}

struct Weights {
  Product_BELOW_FIRST below_first;
  Product_INTERFACE interface;
  Product_BELOW_UPPER below_upper[LAYERS > 1 ? LAYERS - 1 : 1];
  Product_RECURRENT recurrent[LSTM ? LAYERS : 1];
};
__device__ __forceinline__ float* recurrent_weights(float* shared, int layer) { return shared + WEIGHTS_RECURRENT + layer * Product_RECURRENT::WEIGHTS; }
__device__ __forceinline__ float* upper_weights(float* shared, int layer) { return shared + WEIGHTS_BELOW_UPPER + (layer - 1) * Product_BELOW_UPPER::WEIGHTS; }
__device__ __forceinline__ float* recurrent_vector(float* shared, int layer) { return shared + VECTOR_RECURRENT + layer * Product_RECURRENT::VECTOR; }
__device__ __forceinline__ float* upper_vector(float* shared, int layer) { return shared + VECTOR_BELOW_UPPER + (layer - 1) * Product_BELOW_UPPER::VECTOR; }
__device__ __forceinline__ float* recurrent_partials(float* shared, int layer) { return shared + PARTIALS_RECURRENT + layer * Product_RECURRENT::PARTIALS; }
__device__ __forceinline__ const float4* recurrent_packed(const float4* packed, int layer) { return packed + PACKED_RECURRENT + layer * Product_RECURRENT::STREAMED * Product_RECURRENT::ACTIVE; }
__device__ __forceinline__ const float4* upper_packed(const float4* packed, int layer) { return packed + PACKED_BELOW_UPPER + (layer - 1) * Product_BELOW_UPPER::STREAMED * Product_BELOW_UPPER::ACTIVE; }

__device__ __forceinline__ void load_weights(Weights& weights, const float* p, float* shared) {
  weights.below_first.load(BelowBack{p, 0}, shared + WEIGHTS_BELOW_FIRST);
  weights.interface.load(InterfaceBack{p}, shared + WEIGHTS_INTERFACE);
  UNROLL for (int layer = 1; layer < LAYERS; layer++) weights.below_upper[layer - 1].load(BelowBack{p, layer}, upper_weights(shared, layer));
  if constexpr (LSTM) UNROLL for (int layer = 0; layer < LAYERS; layer++) weights.recurrent[layer].load(RecurrentBack{p, layer}, recurrent_weights(shared, layer));
  wait_for_copies();
}

// Back through one unit of an LSTM layer or of a feedforward one; returns nothing but leaves d_gates with all readers.
__device__ __forceinline__ void unit(float* shared, int layer, int unit, float d_hidden, float4 gates, float cell, float before, float hidden, float* d_row) {
  float d_gates[LSTM ? 4 : 1];
  if (LSTM) {
    const float i = gates.x, f = gates.y, g = gates.z, o = gates.w, squashed = hyperbolic_tangent(cell);
    float& carried = shared[CELL + layer * UNITS + unit];
    const float d_cell = carried + d_hidden * o * (1.0f - squashed * squashed);
    carried = d_cell * f;
    d_gates[0] = d_cell * g * i * (1.0f - i);
    d_gates[LSTM ? 1 : 0] = LSTM ? d_cell * before * f * (1.0f - f) : d_gates[0];
    d_gates[LSTM ? 2 : 0] = LSTM ? d_cell * i * (1.0f - g * g) : d_gates[0];
    d_gates[LSTM ? 3 : 0] = LSTM ? d_hidden * squashed * o * (1.0f - o) : d_gates[0];
  } else {
    d_gates[0] = d_hidden * (1.0f - hidden * hidden);
  }
  UNROLL for (int gate = 0; gate < (LSTM ? 4 : 1); gate++) {
    const int k = gate * UNITS + unit;
    d_row[layer * GATES + k] = d_gates[gate];
    if (LSTM) recurrent_vector(shared, layer)[Product_RECURRENT::position(k)] = d_gates[gate];
    if (layer == 0) shared[VECTOR_BELOW_FIRST + Product_BELOW_FIRST::position(k)] = d_gates[gate];
    else upper_vector(shared, layer)[Product_BELOW_UPPER::position(k)] = d_gates[gate];
  }
}

__device__ __forceinline__ void load_records(Records& records, const Kept& kept, int t, const Place& at) {
  UNROLL for (int h = 0; h < HEADS; h++) {
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++)
      records[h][s] = at.active(s) ? kept.records(t)[h * TAPE + at.slot(s)] : make_float4(0, 0, 0, 0);
  }
}
// The memory after step t; t = -1 is the initial one.
__device__ __forceinline__ void load_tape(Rows& rows, const Arguments& a, const Kept& kept, int t, const Place& at) {
  if (t < 0) {
    load_memory(rows, a.initial.memory, at);
  } else {
    const float* tape = kept.tape(t) + threadIdx.x;
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++)
      UNROLL for (int i = 0; i < COLUMNS; i++) rows[s][i] = at.has_slots() ? tape[(s * COLUMNS + i) * SLOT_THREADS] : 0.0f;
  }
}

constexpr int OWN_UNITS = (UNITS + THREADS - 1) / THREADS, OWN_READS = (READS + THREADS - 1) / THREADS;

__device__ __forceinline__ void load_asked(float (&raw)[ENTRIES], float (&asked)[ENTRIES], const OwnEntry (&entries)[ENTRIES], const Kept& kept, int t) {
  UNROLL for (int i = 0; i < ENTRIES; i++) {
    const int o = entries[i].output;
    raw[i] = o >= 0 ? kept.raw(t)[o] : 0.0f;
    asked[i] = o >= 0 ? kept.asked(t)[o] : 0.0f;
  }
}
__device__ __forceinline__ void spread_asked(float* shared, const OwnEntry (&entries)[ENTRIES], const float (&raw)[ENTRIES], const float (&asked)[ENTRIES]) {
  UNROLL for (int i = 0; i < ENTRIES; i++) {
    if (entries[i].output < 0) continue;
    if (SHIFT_SOFTMAX || entries[i].kind != SHIFT_WEIGHT) shared[entries[i].place] = asked[i];
    else UNROLL for (int j = 0; j < TAPS; j++) shared[entries[i].place + j] = scalar_shift_weight(clipped(raw[i]), j);
  }
}

__device__ __forceinline__ void run(const Arguments& a, Weights& weights, float* shared, long long sequence) {
  const Place at = place_of(a, sequence);
  const int thread = threadIdx.x;
  const float4* packed = a.packed + (long long)at.seed * PACKED_TOTAL;
  const Kept kept{a.kept + sequence * a.kept_size, a.steps};
  float* d_rows_of_steps = a.d_rows + sequence * a.steps * GRADIENT_WIDTH;
  const float* d_seen = d_rows_of_steps + SEEN;

  Rows d_rows;
  float d_w[HEADS][SLOTS_PER_THREAD];
  load_memory(d_rows, a.final.memory, at);
  UNROLL for (int h = 0; h < HEADS; h++) {
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      const float* from = h < READ_HEADS ? a.final.read_weightings : a.final.write_weightings;
      const long long head = h < READ_HEADS ? sequence * READ_HEADS + h : sequence * WRITE_HEADS + h - READ_HEADS;
      d_w[h][s] = from && at.active(s) ? from[head * TAPE + at.slot(s)] : 0.0f;
    }
  }
  for (int i = thread; i < Product_RECURRENT::VECTOR * LAYERS && LSTM; i += THREADS) shared[VECTOR_RECURRENT + i] = 0.0f;
  if (LSTM) {
    for (int i = thread; i < LAYERS * UNITS; i += THREADS) {
      shared[D_HIDDEN + i] = a.final.hidden ? a.final.hidden[sequence * LAYERS * UNITS + i] : 0.0f;
      shared[CELL + i] = a.final.cell ? a.final.cell[sequence * LAYERS * UNITS + i] : 0.0f;
    }
  }
  __syncthreads();
  const int last = at.length - 1;
  for (int i = thread; i < READS; i += THREADS) {
    float d = a.final.reads ? a.final.reads[sequence * READS + i] : 0.0f;
    if (OUTPUT_READS && last >= 0) d += d_seen[(long long)last * GRADIENT_WIDTH + UNITS + i];
    shared[D_READS + i / WIDTH * PADDED_WIDTH + i % WIDTH] = d;
  }
  const Neighbours neighbours(at);
  OwnEntry entries[ENTRIES];
  EntryGradient gradients[ENTRIES];
  UNROLL for (int i = 0; i < ENTRIES; i++) {
    entries[i] = own_entry(entry_here(i), KEYS, ERASE, ADD, SCALARS);
    gradients[i] = entry_gradient(entries[i].output);
  }
  Rows after, before;
  Records records;
  float raw[ENTRIES], asked[ENTRIES];
  if (last >= 0) {
    if (WRITE_FIRST) load_tape(after, a, kept, last, at);
    load_tape(before, a, kept, last - 1, at);
    load_asked(raw, asked, entries, kept, last);
    spread_asked(shared, entries, raw, asked);
    if (AHEAD) load_records(records, kept, last, at);
  }
  float4 d_hiddens[LSTM ? LAYERS : 1];  // partial sums: what the step after this one wants of this step's hidden values
  auto background = [&](auto piece) {
    if constexpr (LSTM) {
      UNROLL for (int layer = 0; layer < LAYERS; layer++) {
        if (piece.index == 0) d_hiddens[layer] = make_float4(0, 0, 0, 0);
        weights.recurrent[layer].template piece<decltype(piece)::index, 6>(d_hiddens[layer], recurrent_vector(shared, layer), recurrent_weights(shared, layer), recurrent_packed(packed, layer));
        if (piece.index == 5) weights.recurrent[layer].store(d_hiddens[layer], recurrent_partials(shared, layer));
      }
    }
  };
  __syncthreads();
  for (int t = last; t >= 0; t--) {
    float* d_row = d_rows_of_steps + (long long)t * GRADIENT_WIDTH;
    Rows earlier;
    Records next_records;
    float next_raw[ENTRIES], next_asked[ENTRIES], next_seen[OWN_READS];
    // What the next iteration needs, asked for early, but after the first use of what the last iteration asked for: the
    // hardware counts loads in flight, and waiting for the old ones would wait for these as well.
    const auto ask_for_next = [&] {
      UNROLL for (int i = 0; i < OWN_READS; i++) {
        const int r = thread + i * THREADS;
        next_seen[i] = OUTPUT_READS && t > 0 && r < READS ? d_seen[(long long)(t - 1) * GRADIENT_WIDTH + UNITS + r] : 0.0f;
      }
      if (t > 0) {
        load_tape(earlier, a, kept, t - 2, at);
        load_asked(next_raw, next_asked, entries, kept, t - 1);
        if (AHEAD) load_records(next_records, kept, t - 1, at);
      }
    };
    if (!AHEAD) load_records(records, kept, t, at);

    const auto piece0 = [&] { ask_for_next(), background(Piece<0>{}); };
    const auto piece1 = [&] { background(Piece<1>{}); };
    const auto piece2 = [&] { background(Piece<2>{}); };
    const auto piece3 = [&] { background(Piece<3>{}); };
    const auto piece4 = [&] { background(Piece<4>{}); };
    const auto piece5 = [&] { background(Piece<5>{}); };
    if constexpr (WRITE_FIRST) {
      read(shared, after, d_rows, records, d_w, at);
      address<0, READ_HEADS>(shared, after, d_rows, records, d_w, at, neighbours, piece0, piece1, piece2);
      write(shared, before, d_rows, records, d_w, at);
      address<READ_HEADS, WRITE_HEADS>(shared, before, d_rows, records, d_w + READ_HEADS, at, neighbours, piece3, piece4, piece5);
    } else {
      write(shared, before, d_rows, records, d_w, at);
      read(shared, before, d_rows, records, d_w, at);
      address<0, HEADS>(
          shared, before, d_rows, records, d_w, at, neighbours, [&] { piece0(), piece1(); }, [&] { piece2(), piece3(); }, [&] { piece4(), piece5(); });
    }
    // The top layer's unit of this thread, asked for early.
    float4 gates[OWN_UNITS];
    float cell[OWN_UNITS], cell_before[OWN_UNITS], hidden[OWN_UNITS], seen[OWN_UNITS];
    UNROLL for (int i = 0; i < OWN_UNITS; i++) {
      const int u = thread + i * THREADS;
      if (u < UNITS) {
        if (LSTM) {
          gates[i] = ((const float4*)kept.gates(t, LAYERS - 1))[u];
          cell[i] = kept.cells(t, LAYERS - 1)[u];
          cell_before[i] = t > 0 ? kept.cells(t - 1, LAYERS - 1)[u] : a.initial.cell[(sequence * LAYERS + LAYERS - 1) * UNITS + u];
        } else {
          hidden[i] = kept.before(t + 1)[READS + (LAYERS - 1) * UNITS + u];
        }
        seen[i] = d_seen[(long long)t * GRADIENT_WIDTH + u];
      }
    }
    __syncthreads();
    UNROLL for (int i = 0; i < ENTRIES; i++) {
      const int o = entries[i].output;
      if (o >= 0) {
        const float d = d_interface_entry(shared, gradients[i], entries[i].kind, raw[i], asked[i]);
        shared[VECTOR_INTERFACE + Product_INTERFACE::position(o)] = d;
        d_row[LAYERS * GATES + o] = d;
      }
    }
    __syncthreads();
    {
      float4 sum = make_float4(0, 0, 0, 0);
      weights.interface.template piece<0, 1>(sum, shared + VECTOR_INTERFACE, shared + WEIGHTS_INTERFACE, packed + PACKED_INTERFACE);
      weights.interface.store(sum, shared + PARTIALS);
    }
    if (t > 0) spread_asked(shared, entries, next_raw, next_asked);
    __syncthreads();
    UNROLL for (int layer = LAYERS - 1; layer >= 0; layer--) {
      UNROLL for (int i = 0; i < OWN_UNITS; i++) {
        const int u = thread + i * THREADS;
        if (u < UNITS) {
          float d_hidden;
          if (layer == LAYERS - 1) {
            d_hidden = Product_INTERFACE::total(shared + PARTIALS, u) + seen[i];
          } else {
            d_hidden = Product_BELOW_UPPER::total(shared + PARTIALS, u);
            if (LSTM) {
              gates[i] = ((const float4*)kept.gates(t, layer))[u];
              cell[i] = kept.cells(t, layer)[u];
              cell_before[i] = t > 0 ? kept.cells(t - 1, layer)[u] : a.initial.cell[(sequence * LAYERS + layer) * UNITS + u];
            } else {
              hidden[i] = kept.before(t + 1)[READS + layer * UNITS + u];
            }
          }
          if (LSTM) {
            d_hidden += Product_RECURRENT::total(recurrent_partials(shared, layer), u) + shared[D_HIDDEN + layer * UNITS + u];
            shared[D_HIDDEN + layer * UNITS + u] = 0.0f;
          }
          unit(shared, layer, u, d_hidden, gates[i], cell[i], cell_before[i], hidden[i], d_row);
        }
      }
      __syncthreads();
      float4 sum = make_float4(0, 0, 0, 0);
      if (layer == 0) {
        weights.below_first.template piece<0, 1>(sum, shared + VECTOR_BELOW_FIRST, shared + WEIGHTS_BELOW_FIRST, packed + PACKED_BELOW_FIRST);
        weights.below_first.store(sum, shared + PARTIALS);
      } else {
        const Product_BELOW_UPPER& product = weights.below_upper[layer > 0 ? layer - 1 : 0];
        product.template piece<0, 1>(sum, upper_vector(shared, layer), upper_weights(shared, layer), upper_packed(packed, layer));
        product.store(sum, shared + PARTIALS);
      }
      __syncthreads();
    }
    UNROLL for (int i = 0; i < OWN_READS; i++) {
      const int r = thread + i * THREADS;
      if (r < READS) shared[D_READS + r / WIDTH * PADDED_WIDTH + r % WIDTH] = Product_BELOW_FIRST::total(shared + PARTIALS, r) + next_seen[i];
    }
    if (t > 0) {
      UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
        UNROLL for (int i = 0; i < COLUMNS; i++) after[s][i] = before[s][i], before[s][i] = earlier[s][i];
        if (AHEAD) UNROLL for (int h = 0; h < HEADS; h++) records[h][s] = next_records[h][s];
      }
      UNROLL for (int i = 0; i < ENTRIES; i++) raw[i] = next_raw[i], asked[i] = next_asked[i];
    }
    __syncthreads();
  }
  if (!a.d_initial.memory) return;
  background(Piece<0>{});
  background(Piece<1>{});
  background(Piece<2>{});
  background(Piece<3>{});
  background(Piece<4>{});
  background(Piece<5>{});
  __syncthreads();
  store_memory(d_rows, a.d_initial.memory, a.final.memory, at);
  UNROLL for (int h = 0; h < HEADS; h++) {
    UNROLL for (int s = 0; s < SLOTS_PER_THREAD; s++) {
      const float* from = h < READ_HEADS ? a.final.read_weightings : a.final.write_weightings;
      float* to = h < READ_HEADS ? a.d_initial.read_weightings : a.d_initial.write_weightings;
      const long long head = h < READ_HEADS ? sequence * READ_HEADS + h : sequence * WRITE_HEADS + h - READ_HEADS;
      const long long index = head * TAPE + at.slot(s);
      if (at.leader && at.on_tape(s)) to[index] = at.active(s) ? d_w[h][s] : from ? from[index] : 0.0f;
    }
  }
  for (int i = thread; i < READS; i += THREADS) a.d_initial.reads[sequence * READS + i] = shared[D_READS + i / WIDTH * PADDED_WIDTH + i % WIDTH];
  if (LSTM) {
    for (int i = thread; i < LAYERS * UNITS; i += THREADS) {
      const int layer = i / UNITS, u = i % UNITS;
      a.d_initial.hidden[sequence * LAYERS * UNITS + i] = Product_RECURRENT::total(recurrent_partials(shared, layer), u) + shared[D_HIDDEN + i];
      a.d_initial.cell[sequence * LAYERS * UNITS + i] = shared[CELL + i];
    }
  }
}
}  // namespace backward_pass

extern "C" __global__ void __launch_bounds__(THREADS, 1) ntm_backward(const __grid_constant__ Arguments a) {
  using namespace backward_pass;
  float* shared = (float*)shared_memory;
  for (int i = threadIdx.x; i < WEIGHTS_BELOW_FIRST; i += THREADS) shared[i] = 0.0f;
  __syncthreads();
  Weights weights;
  int loaded = -1;
  for (long long sequence = blockIdx.x; sequence < (long long)a.seeds * a.batch; sequence += gridDim.x) {
    const int seed = sequence / a.batch;
    if (seed != loaded) load_weights(weights, a.parameters + (long long)seed * PARAMETERS, shared);
    loaded = seed;
    run(a, weights, shared, sequence);
    __syncthreads();
  }
}

extern "C" __global__ void ntm_pack_backward(const __grid_constant__ Arguments a) {
  using namespace backward_pass;
  const float* p = a.parameters + (long long)blockIdx.y * PARAMETERS;
  float4* packed = (float4*)a.packed + (long long)blockIdx.y * PACKED_TOTAL;
  Product_BELOW_FIRST::pack(BelowBack{p, 0}, packed + PACKED_BELOW_FIRST);
  Product_INTERFACE::pack(InterfaceBack{p}, packed + PACKED_INTERFACE);
  for (int layer = 1; layer < LAYERS; layer++) Product_BELOW_UPPER::pack(BelowBack{p, layer}, (float4*)upper_packed(packed, layer));
  if (LSTM) for (int layer = 0; layer < LAYERS; layer++) Product_RECURRENT::pack(RecurrentBack{p, layer}, (float4*)recurrent_packed(packed, layer));
}

// ---------------------------------------------------------------------------------------------- weight gradients

// G[o, i] = sum over (row of the batch, step) of D[o] A[i], tile by tile; a chunk of those rows each. The order of the
// sum depends on nothing but the number of rows.
//
// A thread owns eight neighbouring o and every sixteenth i: shared memory keeps up with 40 products for 13 values, what
// a warp stores is contiguous along i, and whole blocks of sixteen columns that a job does not have are skipped. A tile is deep enough for an episode of copy at once:
// one wait for memory instead of three; blocks that share a multiprocessor fill each other's waits.
constexpr int TILE_THREADS = 128, TILE_DEPTH = 48, LOADED_ROWS = TILE_THREADS / 16, LOADS = TILE_DEPTH / LOADED_ROWS, OWN_ROWS = TILE_ROWS / LOADED_ROWS, TILE_BLOCKS = TILE_COLUMNS / 16, LEFT_STRIDE = TILE_ROWS + 4;

// Where the (row of the batch, step) pair `row` of a seed stands in each of the arrays.
struct RowOf {
  long long kept, d, input;
  bool used;
};
__device__ __forceinline__ RowOf gradient_row(const Arguments& a, int seed, int row, int end, bool outputs) {
  const int there = min(row, end - 1), batch_row = there / a.steps, step = there - batch_row * a.steps;
  const long long sequence = (long long)seed * a.batch + batch_row, input = ((long long)seed * a.steps + step) * a.batch + batch_row;
  RowOf r;
  r.kept = sequence * a.kept_size + step * ROW_WIDTH;
  r.d = outputs ? input * OUTPUTS : (sequence * a.steps + step) * GRADIENT_WIDTH;
  r.input = input * INPUTS;
  r.used = row < end && step < a.lengths[sequence];
  return r;
}

template <int BLOCKS>
__device__ __forceinline__ void multiply_tile(float (&sums)[OWN_ROWS][TILE_BLOCKS], const float* left, const float* right, int depth) {
#pragma unroll 4
  for (int k = 0; k < depth; k++) {
    float l[OWN_ROWS];
    UNROLL for (int y = 0; y < OWN_ROWS; y += 4) {
      const float4 four = *(const float4*)(left + k * LEFT_STRIDE + y);
      l[y] = four.x, l[y + 1] = four.y, l[y + 2] = four.z, l[y + 3] = four.w;
    }
    UNROLL for (int x = 0; x < BLOCKS; x++) {
      const float r = right[k * TILE_COLUMNS + 16 * x];
      UNROLL for (int y = 0; y < OWN_ROWS; y++) sums[y][x] += l[y] * r;
    }
  }
}

// Grid: tiles, chunks, seeds.
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 4) ntm_gradient(const __grid_constant__ Arguments a) {
  float* left = (float*)shared_memory;  // [TILE_DEPTH, LEFT_STRIDE]
  float* right = left + TILE_DEPTH * LEFT_STRIDE;  // [TILE_DEPTH, TILE_COLUMNS]
  const int thread = threadIdx.x, seed = blockIdx.z;
  int tile = blockIdx.x, index = 0;
  while (tile >= GRADIENT_JOB[index].across * GRADIENT_JOB[index].down) tile -= GRADIENT_JOB[index].across * GRADIENT_JOB[index].down, index++;
  const GradientJob job = GRADIENT_JOB[index];
  const int first_o = tile / job.across * TILE_ROWS, first_i = tile % job.across * TILE_COLUMNS;
  const int columns = job.columns + job.second_columns;  // and the bias
  const int begin = blockIdx.y * a.chunk_rows, end = min(begin + a.chunk_rows, a.batch * a.steps);
  const int my_row = thread / 16, my_column = thread % 16;
  float sums[OWN_ROWS][TILE_BLOCKS];
  UNROLL for (int y = 0; y < OWN_ROWS; y++) UNROLL for (int x = 0; x < TILE_BLOCKS; x++) sums[y][x] = 0;
  for (int row = begin; row < end; row += TILE_DEPTH) {
    if (row > begin) __syncthreads();
    RowOf rows[LOADS];
    UNROLL for (int part = 0; part < LOADS; part++) rows[part] = gradient_row(a, seed, row + LOADED_ROWS * part + my_row, end, job.d_column < 0);
    UNROLL for (int c = 0; c < TILE_ROWS / 16; c++) {
      const float* from = (job.d_column < 0 ? a.d_outputs : a.d_rows + job.d_column) + min(first_o + my_column + 16 * c, job.rows - 1);
      float* to = left + my_row * LEFT_STRIDE + my_column + 16 * c;
      UNROLL for (int part = 0; part < LOADS; part++) copy_or_zero(to + LOADED_ROWS * part * LEFT_STRIDE, from + rows[part].d, rows[part].used);
    }
    UNROLL for (int c = 0; c < TILE_BLOCKS; c++) {  // what the layer saw: its first part, its second part, then a one for the bias
      const int i = first_i + my_column + 16 * c, second = i - job.columns;
      float* to = right + my_row * TILE_COLUMNS + my_column + 16 * c;
      if (i >= columns) {
        UNROLL for (int part = 0; part < LOADS; part++) to[LOADED_ROWS * part * TILE_COLUMNS] = rows[part].used ? 1.0f : 0.0f;
      } else if (second >= 0 && job.second_source == 0) {
        const float* from = a.inputs + second;
        UNROLL for (int part = 0; part < LOADS; part++) copy_or_zero(to + LOADED_ROWS * part * TILE_COLUMNS, from + rows[part].input, rows[part].used);
      } else {
        const float* from = a.kept + (second < 0 ? job.later * ROW_WIDTH + job.column + i : job.second_later * ROW_WIDTH + job.second_column + second);
        UNROLL for (int part = 0; part < LOADS; part++) copy_or_zero(to + LOADED_ROWS * part * TILE_COLUMNS, from + rows[part].kept, rows[part].used);
      }
    }
    wait_for_copies();
    __syncthreads();
    const int depth = min(TILE_DEPTH, end - row);
    const float *my_left = left + OWN_ROWS * my_row, *my_right = right + my_column;
    const int rows_left = job.rows - first_o - OWN_ROWS * my_row;
    switch (rows_left > 0 ? min(TILE_BLOCKS, (columns - first_i) / 16 + 1) : 0) {
      case 0: break;
      case 1: multiply_tile<1>(sums, my_left, my_right, depth); break;
      case 2: multiply_tile<2>(sums, my_left, my_right, depth); break;
      case 3: multiply_tile<3>(sums, my_left, my_right, depth); break;
      case 4: multiply_tile<4>(sums, my_left, my_right, depth); break;
      default: multiply_tile<TILE_BLOCKS>(sums, my_left, my_right, depth);
    }
  }
  float* gradient = a.gradient + ((long long)blockIdx.y * a.seeds + seed) * PARAMETERS;
  float squares = 0;
  bool bad = false;
  const int o = first_o + OWN_ROWS * my_row, rows_there = job.rows - o;
  UNROLL for (int x = 0; x < TILE_BLOCKS; x++) {
    const int i = first_i + my_column + 16 * x, stride = i < columns ? job.stride : 1;
    if (i > columns) break;
    float* to = gradient + (i < job.columns ? job.at + i : i < columns ? job.second_at + i - job.columns : job.bias) + o * stride;
    UNROLL for (int y = 0; y < OWN_ROWS; y++) {
      if (y >= rows_there) break;
      to[y * stride] = sums[y][x];
      squares += sums[y][x] * sums[y][x];
      bad = bad || !finite(sums[y][x]);
    }
  }
  if (!a.squares) return;
  if (blockIdx.x == 0) for (int b = thread; b < a.batch; b += TILE_THREADS) bad = bad || !finite(a.costs[(long long)seed * a.batch + b]);
  UNROLL for (int bit = 1; bit < 32; bit *= 2) squares += from_lane(squares, bit);
  bad = __any_sync(0xffffffffu, bad);
  __syncthreads();  // nobody reads the tile any more
  if (thread % 32 == 0) left[thread / 32] = bad ? __int_as_float(0x7fffffff) : squares;
  __syncthreads();
  if (thread > 0) return;
  squares = 0;
  UNROLL for (int warp = 0; warp < TILE_THREADS / 32; warp++) squares += left[warp];
  a.squares[seed * gridDim.x + blockIdx.x] = squares;
}

// Adds the chunks up, in order, into the first: [chunks, S, P].
extern "C" __global__ void ntm_add_chunks(const __grid_constant__ Arguments a) {
  const long long count = (long long)a.seeds * PARAMETERS, i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sum = 0;
#pragma unroll 8
  for (int chunk = 0; chunk < a.chunks; chunk++) sum += a.gradient[chunk * count + i];
  a.gradient[i] = sum;
}

// d_inputs = d_gates of the first layer times its weight.
extern "C" __global__ void ntm_input_gradient(const __grid_constant__ Arguments a) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= (long long)a.seeds * a.steps * a.batch * INPUTS) return;
  const int input = i % INPUTS, row = i / INPUTS % a.batch, t = i / INPUTS / a.batch % a.steps, seed = i / INPUTS / a.batch / a.steps;
  const long long sequence = (long long)seed * a.batch + row;
  float sum = 0;
  if (t < a.lengths[sequence]) {
    const float* d_gates = a.d_rows + (sequence * a.steps + t) * GRADIENT_WIDTH;
    const float* weight = a.parameters + (long long)seed * PARAMETERS + WEIGHT_FIRST + input;
#pragma unroll 8
    for (int k = 0; k < GATES; k++) sum += d_gates[k] * weight[k * FIRST_STRIDE];
  }
  a.d_inputs[i] = sum;
}
