// The scan of a Neural Turing Machine: whole sequences forward and backward, one block of threads per sequence.
//
// gpu_plan.py writes the sizes and the shared-memory layout in front of this text and explains the cutting of the work;
// README-gpu.md has the reasons and the measurements. equations.py and reference.py say what is computed, contract.py
// what the tensors are.
//
// Words: a *team* is the LANES_PER_SLOT lanes that share a memory slot; a *row* is a slot's values, COLUMNS of them in
// each lane's registers; *kept* is what the forward pass writes down for the backward pass. Names that start with d_
// are gradients. Barriers are all __syncthreads(), and every branch around one is taken by the whole block.

constexpr int WARPS = THREADS / 32;
constexpr int HEADS = READ_HEADS + WRITE_HEADS;
constexpr int TAPS = 2 * SHIFT_RANGE + 1;
constexpr int SHIFT_INPUTS = SHIFT_SOFTMAX ? TAPS : 1;
constexpr int ADDRESSING = WIDTH + 2 + SHIFT_INPUTS + 1;          // interface entries of a read head
constexpr int WRITING = ADDRESSING + 2 * WIDTH + WRITE_GATE;      // and of a write head
constexpr int INTERFACE = READ_HEADS * ADDRESSING + WRITE_HEADS * WRITING;
constexpr int READS = READ_HEADS * WIDTH;
constexpr int GATES = LSTM ? 4 * UNITS : UNITS;
constexpr int FIRST_STRIDE = INPUTS + READS + (LSTM ? UNITS : 0);  // columns of the first layer's weight
constexpr int UPPER_STRIDE = LSTM ? 2 * UNITS : UNITS;             // and of the layers above
constexpr int UPPER_SIZE = GATES * UPPER_STRIDE + GATES;           // parameters of one of those
constexpr int PADDED_WIDTH = COLUMNS * LANES_PER_SLOT;
constexpr int TEAMS = THREADS / LANES_PER_SLOT;
constexpr int OUTPUT_WIDTH = UNITS + (OUTPUT_READS ? READS : 0);
constexpr int UP4_UNITS = (UNITS + 3) / 4 * 4, UP4_INTERFACE = (INTERFACE + 3) / 4 * 4, UP4_TAPE = (TAPE + 3) / 4 * 4;
constexpr int SCALARS = 4 + TAPS;  // per head in shared memory: strength, gate, sharpening, write gate, raw shifts
constexpr float NORM_EPSILON = 1e-12f, SHARPEN_EPSILON = 1e-20f;
constexpr bool AHEAD = HEADS <= 4;  // load the next step's slot records one step early; many heads lack the registers

#define UNROLL _Pragma("unroll")

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
  const float* mask;        // [S, T, B]
  float* costs;             // [S, B]
  float* d_outputs;         // [S, T, B, O]
  float* d_rows;            // [S, B, T, GRADIENT_WIDTH]
  float* gradient;          // [chunks, S, P]
  float* d_inputs;          // [S, T, B, I]
  long long kept_size;      // floats per sequence
  int seeds, steps, batch;
  int keep;                 // whether the forward pass writes more than rows
  int chunks, chunk_rows;
};

extern __shared__ float4 shared_memory[];

// ---------------------------------------------------------------------------------------------- small functions

__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ float sigmoid(float x) { return quotient(1.0f, 1.0f + expf(-x)); }
__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ __forceinline__ float clipped(float x) {  // keeps NaN, as torch.clamp does
  if (!CLIP) return x;
  return x < -CLIP_AT ? -CLIP_AT : (x > CLIP_AT ? CLIP_AT : x);
}
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
template <int COUNT, int BIT>
__device__ __forceinline__ void fold(float* v, int lane, int start, int end, float* target, bool store) {
  if constexpr (BIT < LANES_PER_SLOT) {
    UNROLL for (int i = 0; i < COUNT; i++)
      if (store && start + i < end) target[start + i] = v[i];
  } else if constexpr (COUNT == 1) {
    v[0] += from_lane(v[0], BIT);
    fold<1, BIT / 2>(v, lane, start, end, target, store && !(lane & BIT));
  } else {
    constexpr int half = (COUNT + 1) / 2;
    const bool upper = lane & BIT;
    UNROLL for (int i = 0; i < half; i++) {
      const float low = v[i], high = i + half < COUNT ? v[i + half] : 0.0f;
      v[i] = (upper ? high : low) + from_lane(upper ? low : high, BIT);
    }
    fold<half, BIT / 2>(v, lane, upper ? start + half : start, upper ? end : min(end, start + half), target, store);
  }
}
template <int COUNT>
__device__ __forceinline__ void store_slot_sums(float (&v)[COUNT], float* target, bool store) {
  fold<COUNT, 16>(v, threadIdx.x % 32, 0, COUNT, target, store);
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
    w.x = k < INNER && 4 * group + 0 < OUTPUTS_ ? weight(4 * group + 0, k) : 0.0f;
    w.y = k < INNER && 4 * group + 1 < OUTPUTS_ ? weight(4 * group + 1, k) : 0.0f;
    w.z = k < INNER && 4 * group + 2 < OUTPUTS_ ? weight(4 * group + 2, k) : 0.0f;
    w.w = k < INNER && 4 * group + 3 < OUTPUTS_ ? weight(4 * group + 3, k) : 0.0f;
    return w;
  }

  template <class Weight>
  __device__ __forceinline__ void load(const Weight& weight, float* shared) {
    const int thread = threadIdx.x;
    if (thread >= ACTIVE) return;
    UNROLL for (int j = 0; j < IN_REGISTERS; j++) held[j] = four(weight, thread, j);
#pragma unroll 4
    for (int j = 0; j < IN_SHARED; j++) ((float4*)shared)[j * ACTIVE + thread] = four(weight, thread, IN_REGISTERS + j);
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
    float sum = 0;
    UNROLL for (int split = 0; split < SPLITS; split++) sum += partials[split * 4 * GROUPS + output];
    return sum;
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
  __device__ float operator()(int output, int k) const {
    const int columns = layer == 0 ? INPUTS + READS : UNITS, stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE;
    const int row = gate_row(output);
    return k < columns ? p[weight_offset(layer) + row * stride + k] : p[bias_offset(layer) + row];
  }
};
struct RecurrentWeight {  // hidden of the step before -> gates
  const float* p;
  int layer;
  __device__ float operator()(int output, int k) const {
    const int stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE, columns = layer == 0 ? INPUTS + READS : UNITS;
    return p[weight_offset(layer) + gate_row(output) * stride + columns + k];
  }
};
struct InterfaceWeight {  // [hidden, 1] -> interface
  const float* p;
  __device__ float operator()(int output, int k) const {
    return k < UNITS ? p[INTERFACE_WEIGHT + output * UNITS + k] : p[INTERFACE_BIAS + output];
  }
};
struct BelowBack {  // d_gates -> d_reads or d_hidden of the layer below
  const float* p;
  int layer;
  __device__ float operator()(int output, int k) const {
    const int stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE;
    return p[weight_offset(layer) + k * stride + (layer == 0 ? INPUTS : 0) + output];
  }
};
struct RecurrentBack {  // d_gates -> d_hidden of the step before
  const float* p;
  int layer;
  __device__ float operator()(int output, int k) const {
    const int stride = layer == 0 ? FIRST_STRIDE : UPPER_STRIDE, columns = layer == 0 ? INPUTS + READS : UNITS;
    return p[weight_offset(layer) + k * stride + columns + output];
  }
};
struct InterfaceBack {  // d_interface -> d_hidden
  const float* p;
  __device__ float operator()(int output, int k) const { return p[INTERFACE_WEIGHT + k * UNITS + output]; }
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
    return (float*)records(steps) + (long long)t * SLOTS_PER_THREAD * COLUMNS * THREADS;
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
  __device__ __forceinline__ bool on_tape(int s) const { return slot(s) < TAPE; }
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

// The interface entry `entry` of its head, as one of these.
enum Field { KEY, STRENGTH, GATE, SHIFT, SHARPENING, ERASE_, ADD_, WRITE_GATE_ };
struct Entry {
  int head, index;  // head counts read heads, then write heads; index within the field
  Field field;
};
__device__ __forceinline__ Entry entry_of(int o) {
  Entry e;
  int i;
  if (o < READ_HEADS * ADDRESSING) {
    e.head = o / ADDRESSING;
    i = o % ADDRESSING;
  } else {
    e.head = READ_HEADS + (o - READ_HEADS * ADDRESSING) / WRITING;
    i = (o - READ_HEADS * ADDRESSING) % WRITING;
  }
  e.index = 0;
  if (i < WIDTH) {
    e.field = KEY;
    e.index = i;
  } else if (i == WIDTH) {
    e.field = STRENGTH;
  } else if (i == WIDTH + 1) {
    e.field = GATE;
  } else if (i < WIDTH + 2 + SHIFT_INPUTS) {
    e.field = SHIFT;
    e.index = i - WIDTH - 2;
  } else if (i == ADDRESSING - 1) {
    e.field = SHARPENING;
  } else if (i < ADDRESSING + WIDTH) {
    e.field = ERASE_;
    e.index = i - ADDRESSING;
  } else if (i < ADDRESSING + 2 * WIDTH) {
    e.field = ADD_;
    e.index = i - ADDRESSING - WIDTH;
  } else {
    e.field = WRITE_GATE_;
  }
  return e;
}

__device__ __forceinline__ float activation(Entry e, float raw) {
  switch (e.field) {
    case KEY: return KEY_TANH ? tanhf(raw) : raw;
    case STRENGTH: return softplus(raw);
    case SHARPENING: return 1.0f + softplus(raw);
    case SHIFT: return raw;  // `shift_weights` needs all of them
    case ADD_: return ADD_ACTIVATION == 0 ? raw : ADD_ACTIVATION == 1 ? tanhf(raw) : sigmoid(raw);
    default: return sigmoid(raw);
  }
}

// Where an entry stands in shared memory, given the offsets of one of the two layouts.
__device__ __forceinline__ float* asked_place(Entry e, float* keys, float* erase, float* add, float* scalars) {
  const int writer = e.head - READ_HEADS;
  switch (e.field) {
    case KEY: return keys + e.head * PADDED_WIDTH + e.index;
    case STRENGTH: return scalars + e.head * SCALARS;
    case GATE: return scalars + e.head * SCALARS + 1;
    case SHARPENING: return scalars + e.head * SCALARS + 2;
    case WRITE_GATE_: return scalars + e.head * SCALARS + 3;
    case SHIFT: return scalars + e.head * SCALARS + 4 + e.index;
    case ERASE_: return erase + writer * PADDED_WIDTH + e.index;
    default: return add + writer * PADDED_WIDTH + e.index;
  }
}

// The weights of the shifts -r .. r, from the raw entries.
__device__ __forceinline__ void shift_weights(const float* scalars, float (&weights)[TAPS]) {
  const float* raw = scalars + 4;
  if (SHIFT_SOFTMAX) {
    float most = raw[0], sum = 0;
    UNROLL for (int j = 1; j < TAPS; j++) most = fmaxf(most, raw[j]);
    UNROLL for (int j = 0; j < TAPS; j++) sum += weights[j] = expf(raw[j] - most);
    const float inverse = quotient(1.0f, sum);
    UNROLL for (int j = 0; j < TAPS; j++) weights[j] *= inverse;
  } else {
    const float amount = SHIFT_RANGE * tanhf(raw[0]), whole = floorf(amount), part = amount - whole;
    UNROLL for (int j = 0; j < TAPS; j++) {
      const float offset = j - SHIFT_RANGE;
      weights[j] = offset == whole ? 1.0f - part : offset == whole + 1.0f ? part : part - part;  // NaN stays NaN
    }
  }
}

__device__ __forceinline__ int around(int slot, int slots) {  // slot modulo slots; the division is rare
  if (slot < 0 || slot >= slots) slot = (slot % slots + slots) % slots;
  return slot;
}

// Eq. 6 for one slot: the cosine, and what its gradient needs.
struct Cosine {
  float value;
  float inverse;    // 1 / (|k| |row|), times the row's scale: d value / d (k . row), for the scaled key
  float row_scale;  // 1 / max(1, largest entry)
  float row_norm;   // squared norm of the scaled row, with epsilon
};
struct KeyNorm {
  float scale, squared;
};
__device__ __forceinline__ KeyNorm key_norm(const float* key) {
  float squared = 0, most = 0;
  UNROLL for (int i = 0; i < COLUMNS; i++) {
    squared += key[i] * key[i];
    most = fmaxf(most, fabsf(key[i]));
  }
  KeyNorm norm;
  norm.scale = 1.0f;
  if (!KEY_TANH) {
    most = team_max(most);
    if (most > 1.0f) norm.scale = quotient(1.0f, most);
    if (most > 1e15f) {
      squared = 0;
      UNROLL for (int i = 0; i < COLUMNS; i++) squared += key[i] * norm.scale * (key[i] * norm.scale);
      squared = squared / (norm.scale * norm.scale);
    }
  }
  norm.squared = team_sum(squared) * norm.scale * norm.scale + NORM_EPSILON;
  return norm;
}
