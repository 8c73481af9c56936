// S stacked LSTMs of one configuration: forward, loss, backward, weight gradients. gpu.py puts the sizes in front of this
// text and launches the kernels in order; README.md says how the work is laid out.
//
// Legend: S seeds, T steps, B sequences of a seed, R = T * B, I inputs, O outputs, H units of a layer, L layers. IP, HP: I
// and H rounded up to 32; padding is zeros. G = 4 * HP gates, the four of a unit side by side: column 4 * unit + gate.
// LH = L * HP.
//
// Rows are packed: a seed's sequences are sorted, longest first, and a step has rows for those that still run. The row of
// step t and place p is starts[t] + p; in `hidden` and `cell`, B rows for the initial state come before.

extern __shared__ float4 shared_memory[];

struct Arguments {
  const float *parameters, *inputs, *targets, *mask;  // [S, P], [S, T, B, I], [S, T, B, O], [S, T, B]
  const long long* lengths;                           // [S, B]
  int *starts, *places, *origin, *before;  // [S, T + 1], [S, B], [S, R] index of (t, b), [S, R] row of the step before
  float *packed;                           // [S, PACKED] weights, see the offsets below
  float *rows;                             // [S, R, IP] inputs
  float *hidden, *cell;                    // [S, B + R, LH], [S, L, B + R, HP]
  float *gates;                            // [S, L, R, G]: products of the layer's input; gates; their gradients
  float *d_hidden, *d_cell, *d_start;      // [S, R, LH], [S, B, HP], [S, 2, L, B, HP]
  float *d_logits, *row_costs;             // [S, R, O], [S, R]
  float *outputs, *costs, *gradient;       // [S, T, B, O], [S, B], [S, P]
  int seeds, steps, batch, layer, step, loss;
};

enum Loss { BINARY, CATEGORICAL };

// --- parameters of a seed, in the order of PaperLSTM, and packed --------------------------------------------------------

__device__ constexpr int input_columns(int layer) { return I + (layer > 0 ? H : 0); }
__device__ constexpr long long layer_size(int layer) { return 4LL * H * (input_columns(layer) + H + 1); }
__device__ constexpr long long layer_offset(int layer) {
  long long offset = 0;
  for (int l = 0; l < layer; l++) offset += layer_size(l);
  return offset;
}
__device__ constexpr long long hidden_offset(int layer) { return layer_offset(layer) + 4LL * H * input_columns(layer); }
__device__ constexpr long long bias_offset(int layer) { return hidden_offset(layer) + 4LL * H * H; }
constexpr int G = 4 * HP, LH = L * HP;
constexpr long long INITIAL = layer_offset(L);  // hidden, then cell: [L, H] each
constexpr long long OUTPUT = INITIAL + 2LL * L * H, OUTPUT_BIAS = OUTPUT + (long long)O * L * H;
constexpr long long P = OUTPUT_BIAS + O;

// Packed weights of a layer: [IP + HP + HP, G] for the way forward (inputs, layer below, own hidden state; the middle part
// stays unused in the first layer), [2, G, HP] for the way back (layer below, own hidden state), [G] biases.
constexpr int WAYS = IP + 2 * HP;
constexpr long long LAYER_PACKED = (long long)WAYS * G + 2LL * G * HP + G;
constexpr long long OUTPUT_PACKED = L * LAYER_PACKED, PACKED = OUTPUT_PACKED + (long long)O * LH;
__device__ constexpr long long ahead(int layer) { return layer * LAYER_PACKED; }
__device__ constexpr long long back(int layer) { return ahead(layer) + (long long)WAYS * G; }
__device__ constexpr long long packed_bias(int layer) { return back(layer) + 2LL * G * HP; }

__device__ __forceinline__ int rows_of(const Arguments& a, int seed) { return a.starts[seed * (a.steps + 1) + a.steps]; }
__device__ __forceinline__ int start_of(const Arguments& a, int seed, int step) { return a.starts[seed * (a.steps + 1) + step]; }

// Where each sequence goes, and where each step begins. Grid: S.
extern "C" __global__ void __launch_bounds__(THREADS) lstm_order(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.x, steps = a.steps, batch = a.batch;
  const long long* lengths = a.lengths + (long long)seed * batch;
  int *starts = a.starts + seed * (steps + 1), *places = a.places + (long long)seed * batch;
  for (int t = threadIdx.x; t <= steps; t += THREADS) {
    int before = 0;
    for (int b = 0; b < batch; b++) before += min((int)lengths[b], t);
    starts[t] = before;
  }
  __syncthreads();
  for (int b = threadIdx.x; b < batch; b += THREADS) {
    const int mine = (int)lengths[b];
    int place = 0;
    for (int other = 0; other < batch; other++) place += lengths[other] > mine || (lengths[other] == mine && other < b);
    places[b] = place;
    for (int t = 0; t < mine; t++) {
      const long long row = (long long)seed * steps * batch + starts[t] + place;
      a.origin[row] = t * batch + b;
      a.before[row] = (t > 0 ? batch + starts[t - 1] : 0) + place;
    }
  }
}

// Weights in the order in which the products read them. Grid: tiles of 32 x 32, 3 L parts, S.
extern "C" __global__ void __launch_bounds__(THREADS) lstm_pack(const __grid_constant__ Arguments a) {
  float(*tile)[33] = (float(*)[33])shared_memory;
  const int seed = blockIdx.z, layer = blockIdx.y / 3, part = blockIdx.y % 3;  // inputs, layer below, own hidden state
  const int gate_tiles = G / 32, first_column = 32 * (blockIdx.x % gate_tiles), first = 32 * (blockIdx.x / gate_tiles);
  const int width = part == 0 ? IP : HP, used = part == 0 ? I : H;
  if (first >= width || (part == 1 && layer == 0)) return;
  const float* weights = a.parameters + seed * P + (part == 2 ? hidden_offset(layer) : layer_offset(layer));
  const int columns = part == 2 ? H : input_columns(layer), shift = part == 1 ? I : 0;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int j = warp; j < 32; j += THREADS / 32) {
    const int column = first_column + j, unit = column / 4, gate = column % 4, i = first + lane;
    tile[j][lane] = unit < H && i < used ? weights[((long long)gate * H + unit) * columns + shift + i] : 0.0f;
  }
  __syncthreads();
  float* packed = a.packed + seed * PACKED;
  float* forward = packed + ahead(layer) + (long long)(part == 0 ? 0 : part == 1 ? IP : IP + HP) * G;
  for (int i = warp; i < 32; i += THREADS / 32) {
    if (first + i < width) forward[(long long)(first + i) * G + first_column + lane] = tile[lane][i];
  }
  if (part == 0) return;
  float* backward = packed + back(layer) + (long long)(part - 1) * G * HP;
  for (int j = warp; j < 32; j += THREADS / 32) {
    if (first + lane < width) backward[(long long)(first_column + j) * HP + first + lane] = tile[j][lane];
  }
}

// Inputs by rows, initial states, biases and the output layer's weights. Grid: any, S.
extern "C" __global__ void __launch_bounds__(THREADS) lstm_begin(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.y, batch = a.batch;
  const long long first = (long long)blockIdx.x * THREADS + threadIdx.x, stride = (long long)gridDim.x * THREADS;
  const long long all = (long long)a.steps * batch;
  const float* parameters = a.parameters + seed * P;
  float* packed = a.packed + seed * PACKED;
  const long long rows = rows_of(a, seed);
  for (long long at = first; at < rows * IP; at += stride) {
    const int i = at % IP;
    const long long from = seed * all + a.origin[seed * all + at / IP];
    a.rows[seed * all * IP + at] = i < I ? a.inputs[from * I + i] : 0.0f;
  }
  for (long long at = first; at < (long long)batch * LH; at += stride) {
    const int unit = at % HP, layer = at / HP % L;
    const long long place = at / LH, from = INITIAL + (long long)layer * H + unit;
    a.hidden[seed * (batch + all) * LH + at] = unit < H ? parameters[from] : 0.0f;
    a.cell[((seed * L + layer) * (batch + all) + place) * HP + unit] = unit < H ? parameters[from + L * H] : 0.0f;
  }
  for (long long at = first; at < (long long)L * G; at += stride) {
    const int layer = at / G, column = at % G, unit = column / 4;
    const float bias = unit < H ? parameters[bias_offset(layer) + (column % 4) * H + unit] : 0.0f;
    packed[packed_bias(layer) + column] = bias;
  }
  for (long long at = first; at < (long long)O * LH; at += stride) {
    const int unit = at % HP, layer = at / HP % L, output = at / LH;
    packed[OUTPUT_PACKED + at] = unit < H ? parameters[OUTPUT + ((long long)output * L + layer) * H + unit] : 0.0f;
  }
}

// --- products over all steps ---------------------------------------------------------------------------------------------

constexpr int DEPTH = 16;  // of what is summed over, at a time

// C[row, column] of 128 rows and 64 columns. FORWARD: gates of a layer = bias + (inputs, hidden state of the layer below)
// x weights. Otherwise: d_hidden of the layer below += d_gates x weights. Grid: tiles of columns, tiles of rows, S.
template <bool FORWARD>
__device__ __forceinline__ void product(const Arguments& a) {
  constexpr int ROWS = 128, COLUMNS = 64, LEFT = ROWS + 4, WIDTH = FORWARD ? G : HP;
  float(*left)[DEPTH][LEFT] = (float(*)[DEPTH][LEFT])shared_memory;
  float(*right)[DEPTH][COLUMNS] = (float(*)[DEPTH][COLUMNS])(left + 2);
  const int seed = blockIdx.z, layer = a.layer, first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
  const int rows = rows_of(a, seed), thread = threadIdx.x;
  if (first_row >= rows) return;
  const long long all = (long long)a.steps * a.batch;
  const float* packed = a.packed + seed * PACKED;
  const float* inputs = a.rows + seed * all * IP;
  const float* below = a.hidden + (seed * (a.batch + all) + a.batch) * LH + (layer - 1) * HP;
  float* gates = a.gates + (seed * L + layer) * all * G;
  const float* weights = FORWARD ? packed + ahead(layer) : packed + back(layer);
  const int depth = FORWARD ? IP + (layer > 0 ? HP : 0) : G;
  float4 mine[4], yours[2];
  auto load = [&](int k) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const int row = first_row + thread / 4 + 32 * n, column = k + 4 * (thread % 4);
      const float* from = !FORWARD ? gates + (long long)row * G + column
                          : k < IP ? inputs + (long long)row * IP + column
                                   : below + (long long)row * LH + column - IP;
      mine[n] = row < rows ? *(const float4*)from : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const int column = first_column + 4 * (thread % 16);
      const float* from = weights + (long long)(k + thread / 16 + 8 * n) * WIDTH + column;
      yours[n] = column < WIDTH ? *(const float4*)from : make_float4(0, 0, 0, 0);
    }
  };
  auto store = [&](int buffer) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const int row = thread / 4 + 32 * n, k = 4 * (thread % 4);
      left[buffer][k][row] = mine[n].x;
      left[buffer][k + 1][row] = mine[n].y;
      left[buffer][k + 2][row] = mine[n].z;
      left[buffer][k + 3][row] = mine[n].w;
    }
#pragma unroll
    for (int n = 0; n < 2; n++) *(float4*)&right[buffer][thread / 16 + 8 * n][4 * (thread % 16)] = yours[n];
  };
  const int x = 4 * (thread % 8), y = 4 * (thread / 8);  // and 32 columns, 64 rows further on
  float sums[8][8] = {};
  load(0);
  store(0);
  __syncthreads();
  for (int k = 0, buffer = 0; k < depth; k += DEPTH, buffer ^= 1) {
    if (k + DEPTH < depth) load(k + DEPTH);
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
      float u[8], v[8];
      *(float4*)&u[0] = *(const float4*)&left[buffer][i][y];
      *(float4*)&u[4] = *(const float4*)&left[buffer][i][y + 64];
      *(float4*)&v[0] = *(const float4*)&right[buffer][i][x];
      *(float4*)&v[4] = *(const float4*)&right[buffer][i][x + 32];
#pragma unroll
      for (int m = 0; m < 8; m++)
#pragma unroll
        for (int n = 0; n < 8; n++) sums[m][n] = __fmaf_rn(u[m], v[n], sums[m][n]);
    }
    if (k + DEPTH < depth) store(buffer ^ 1);
    __syncthreads();
  }
  for (int m = 0; m < 8; m++) {
    const int row = first_row + y + m % 4 + 64 * (m / 4);
    if (row >= rows) continue;
    for (int half = 0; half < 2; half++) {
      const int column = first_column + x + 32 * half;
      if (column >= WIDTH) continue;
      const float* s = &sums[m][4 * half];
      float* to = FORWARD ? gates + (long long)row * G + column
                          : a.d_hidden + (seed * all + row) * LH + (layer - 1) * HP + column;
      const float4 old = FORWARD ? *(const float4*)(packed + packed_bias(layer) + column) : *(const float4*)to;
      *(float4*)to = make_float4(old.x + s[0], old.y + s[1], old.z + s[2], old.w + s[3]);
    }
  }
}
extern "C" __global__ void __launch_bounds__(128) lstm_inputs(const __grid_constant__ Arguments a) { product<true>(a); }
extern "C" __global__ void __launch_bounds__(128) lstm_below(const __grid_constant__ Arguments a) { product<false>(a); }

// Weight gradients of a layer: a sum over all rows. A tile is 64 columns of a matrix (inputs, layer below or own hidden
// state) and 128 gates. Grid: tiles, 3 L parts, S.
extern "C" __global__ void __launch_bounds__(128) lstm_gradient(const __grid_constant__ Arguments a) {
  constexpr int ACROSS = 64, GATES = 128;
  float(*left)[DEPTH][ACROSS] = (float(*)[DEPTH][ACROSS])shared_memory;
  float(*right)[DEPTH][GATES] = (float(*)[DEPTH][GATES])(left + 2);
  const int seed = blockIdx.z, layer = blockIdx.y / 3, part = blockIdx.y % 3, thread = threadIdx.x;
  const int gate_tiles = (G + GATES - 1) / GATES;
  const int first_gate = GATES * (blockIdx.x % gate_tiles), first = ACROSS * (blockIdx.x / gate_tiles);
  const int width = part == 0 ? IP : HP;
  if (first >= width || (part == 1 && layer == 0)) return;
  const int rows = rows_of(a, seed), pitch = part == 0 ? IP : LH;
  const long long all = (long long)a.steps * a.batch;
  const float* hidden = a.hidden + seed * (a.batch + all) * LH;
  const float* from = part == 0   ? a.rows + seed * all * IP
                      : part == 1 ? hidden + (long long)a.batch * LH + (layer - 1) * HP
                                  : hidden + layer * HP;
  const int* before = a.before + seed * all;
  const float* d_gates = a.gates + (seed * L + layer) * all * G;
  float4 mine[2], yours[4];
  auto load = [&](int r) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const int row = r + thread / 16 + 8 * n, column = first + 4 * (thread % 16);
      const bool inside = row < rows && column < width;
      const long long at = !inside ? 0 : part == 2 ? before[row] : row;
      mine[n] = inside ? *(const float4*)(from + at * pitch + column) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const int row = r + thread / 32 + 4 * n, gate = first_gate + 4 * (thread % 32);
      const bool inside = row < rows && gate < G;
      yours[n] = inside ? *(const float4*)(d_gates + (long long)row * G + gate) : make_float4(0, 0, 0, 0);
    }
  };
  auto store = [&](int buffer) {
#pragma unroll
    for (int n = 0; n < 2; n++) *(float4*)&left[buffer][thread / 16 + 8 * n][4 * (thread % 16)] = mine[n];
#pragma unroll
    for (int n = 0; n < 4; n++) *(float4*)&right[buffer][thread / 32 + 4 * n][4 * (thread % 32)] = yours[n];
  };
  const int x = 4 * (thread % 8), y = 4 * (thread / 8);  // columns, and 32 further on; gates, and 64 further on
  float sums[8][8] = {};                                 // [column][gate]
  load(0);
  store(0);
  __syncthreads();
  for (int r = 0, buffer = 0; r < rows; r += DEPTH, buffer ^= 1) {
    if (r + DEPTH < rows) load(r + DEPTH);
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
      float u[8], v[8];
      *(float4*)&u[0] = *(const float4*)&left[buffer][i][x];
      *(float4*)&u[4] = *(const float4*)&left[buffer][i][x + 32];
      *(float4*)&v[0] = *(const float4*)&right[buffer][i][y];
      *(float4*)&v[4] = *(const float4*)&right[buffer][i][y + 64];
#pragma unroll
      for (int m = 0; m < 8; m++)
#pragma unroll
        for (int n = 0; n < 8; n++) sums[m][n] = __fmaf_rn(u[m], v[n], sums[m][n]);
    }
    if (r + DEPTH < rows) store(buffer ^ 1);
    __syncthreads();
  }
  const int used = part == 0 ? I : H, columns = part == 2 ? H : input_columns(layer), shift = part == 1 ? I : 0;
  float* gradient = a.gradient + seed * P + (part == 2 ? hidden_offset(layer) : layer_offset(layer)) + shift;
  for (int n = 0; n < 8; n++) {
    const int unit = (first_gate + y + 64 * (n / 4)) / 4, gate = n % 4;
    if (unit >= H) continue;
    for (int m = 0; m < 8; m++) {
      const int column = first + x + 32 * (m / 4) + m % 4;
      if (column < used) gradient[((long long)gate * H + unit) * columns + column] = sums[m][n];
    }
  }
}

// --- one step of one layer -----------------------------------------------------------------------------------------------

// A block has TILE rows and COLUMNS columns of a product over `depth` terms; a thread has TILE / 4 rows, four columns and
// a share of the terms. The shares are added in their order. Leaves sums[row][column] in shared memory.
template <int COLUMNS>
__device__ __forceinline__ void step_product(const float* left, long long pitch, int rows, const float* right, int width, int depth) {
  constexpr int QUADS = COLUMNS / 4, SHARES = STEP_THREADS / (4 * QUADS), EACH = TILE / 4;
  float(*partial)[TILE][COLUMNS] = (float(*)[TILE][COLUMNS])shared_memory;
  const int group = threadIdx.x % 4, quad = threadIdx.x / 4 % QUADS, share = threadIdx.x / (4 * QUADS);
  float sums[EACH][4] = {};
  const int terms = depth / SHARES, first = share * terms;
  if (group * EACH < rows) {
    const float* from[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) from[i] = left + (long long)min(group * EACH + i, rows - 1) * pitch + first;
    const float* weights = right + (long long)first * width + 4 * quad;
#pragma unroll UNROLL
    for (int k = 0; k < terms; k += 4) {
      float4 w[4];
#pragma unroll
      for (int j = 0; j < 4; j++) w[j] = *(const float4*)(weights + (long long)(k + j) * width);
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const float4 x = *(const float4*)(from[i] + k);
        const float* xs = (const float*)&x;
#pragma unroll
        for (int j = 0; j < 4; j++) {
          sums[i][0] = __fmaf_rn(xs[j], w[j].x, sums[i][0]);
          sums[i][1] = __fmaf_rn(xs[j], w[j].y, sums[i][1]);
          sums[i][2] = __fmaf_rn(xs[j], w[j].z, sums[i][2]);
          sums[i][3] = __fmaf_rn(xs[j], w[j].w, sums[i][3]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < EACH; i++) *(float4*)&partial[share][group * EACH + i][4 * quad] = *(float4*)sums[i];
  __syncthreads();
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Grid: tiles of units, tiles of TILE rows, S.
extern "C" __global__ void __launch_bounds__(STEP_THREADS) lstm_forward(const __grid_constant__ Arguments a) {
  constexpr int UNITS = FORWARD_UNITS, COLUMNS = 4 * UNITS, SHARES = STEP_THREADS / COLUMNS;
  const int seed = blockIdx.z, layer = a.layer, step = a.step, first_unit = UNITS * blockIdx.x, first = TILE * blockIdx.y;
  const int start = start_of(a, seed, step), rows = min(TILE, start_of(a, seed, step + 1) - start - first);
  if (rows <= 0) return;
  const long long all = (long long)a.steps * a.batch, base = seed * (a.batch + all);
  const long long before = (step > 0 ? a.batch + start_of(a, seed, step - 1) : 0) + first, now = a.batch + start + first;
  const float* weights = a.packed + seed * PACKED + ahead(layer) + (long long)(IP + HP) * G + 4 * first_unit;
  step_product<COLUMNS>(a.hidden + (base + before) * LH + layer * HP, LH, rows, weights, G, HP);
  const float(*partial)[TILE][COLUMNS] = (const float(*)[TILE][COLUMNS])shared_memory;
  float* cell = a.cell + ((seed * L + layer) * (a.batch + all)) * HP + first_unit;
  for (int at = threadIdx.x; at < rows * UNITS; at += STEP_THREADS) {
    const int row = at / UNITS, unit = at % UNITS;
    float* gates = a.gates + ((seed * L + layer) * all + start + first + row) * G + 4 * (first_unit + unit);
    float4 z = *(const float4*)gates;
    for (int share = 0; share < SHARES; share++) {
      const float4 more = *(const float4*)&partial[share][row][4 * unit];
      z = make_float4(z.x + more.x, z.y + more.y, z.z + more.z, z.w + more.w);
    }
    const float i = sigmoid(z.x), f = sigmoid(z.y), g = tanhf(z.z), o = sigmoid(z.w);
    const float c = __fmaf_rn(f, cell[(before + row) * HP + unit], i * g);
    *(float4*)gates = make_float4(i, f, g, o);
    cell[(now + row) * HP + unit] = c;
    a.hidden[(base + now + row) * LH + layer * HP + first_unit + unit] = o * tanhf(c);
  }
}

// From step + 1 to step, -1 being the initial state. Grid as forward.
extern "C" __global__ void __launch_bounds__(STEP_THREADS) lstm_backward(const __grid_constant__ Arguments a) {
  constexpr int UNITS = BACKWARD_UNITS, SHARES = STEP_THREADS / UNITS;
  const int seed = blockIdx.z, layer = a.layer, step = a.step, first_unit = UNITS * blockIdx.x, first = TILE * blockIdx.y;
  const int start = step >= 0 ? start_of(a, seed, step) : 0, end = start_of(a, seed, step + 1);
  const int rows = min(TILE, (step >= 0 ? end - start : a.batch) - first);
  const int later = step + 1 < a.steps ? min(TILE, start_of(a, seed, step + 2) - end - first) : 0;  // rows that went on
  if (rows <= 0) return;
  const long long all = (long long)a.steps * a.batch;
  float* layer_gates = a.gates + (seed * L + layer) * all * G;
  const float* weights = a.packed + seed * PACKED + back(layer) + (long long)G * HP + first_unit;
  if (later > 0) step_product<UNITS>(layer_gates + (long long)(end + first) * G, G, later, weights, HP, G);
  const float(*partial)[TILE][UNITS] = (const float(*)[TILE][UNITS])shared_memory;
  float* d_cell = a.d_cell + (long long)seed * a.batch * HP + first_unit;
  const float* cell = a.cell + ((seed * L + layer) * (a.batch + all)) * HP + first_unit;
  for (int at = threadIdx.x; at < rows * UNITS; at += STEP_THREADS) {
    const int row = at / UNITS, unit = at % UNITS, place = first + row;
    float d_hidden = 0, d_after = 0;
    if (row < later) {
      for (int share = 0; share < SHARES; share++) d_hidden += partial[share][row][unit];
      d_after = d_cell[place * HP + unit];
    }
    if (step < 0) {
      float* to = a.d_start + ((seed * 2LL * L + layer) * a.batch + place) * HP + first_unit + unit;
      to[0] = d_hidden;
      to[(long long)L * a.batch * HP] = d_after;
      continue;
    }
    d_hidden += a.d_hidden[(seed * all + start + place) * LH + layer * HP + first_unit + unit];
    float* gates = layer_gates + (long long)(start + place) * G + 4 * (first_unit + unit);
    const float4 was = *(const float4*)gates;  // i, f, g, o
    const float c = tanhf(cell[(a.batch + start + place) * (long long)HP + unit]);
    const float c_before = cell[(long long)((step > 0 ? a.batch + start_of(a, seed, step - 1) : 0) + place) * HP + unit];
    const float d_c = __fmaf_rn(d_hidden * was.w, 1.0f - c * c, d_after);
    *(float4*)gates = make_float4(
        d_c * was.z * was.x * (1.0f - was.x), d_c * c_before * was.y * (1.0f - was.y), d_c * was.x * (1.0f - was.z * was.z),
        d_hidden * c * was.w * (1.0f - was.w));
    d_cell[place * HP + unit] = d_c * was.y;
  }
}

// --- all steps of one layer ----------------------------------------------------------------------------------------------

#if CLUSTER
// A cluster of blocks runs all steps of a layer with TILE sequences. Each block has UNITS of the units, and keeps their
// weights in registers: a thread those of four columns and a share of the terms. Between two steps the blocks exchange
// hidden states, or on the way back gradients of gates, through global memory.
constexpr int UNITS = HP / CLUSTER, TERMS = HP * UNITS / LAYER_THREADS, GAP = TERMS + 4;  // of a share in shared memory
constexpr int OWN = (TILE * UNITS + LAYER_THREADS - 1) / LAYER_THREADS;                     // places that a thread sums up

__device__ __forceinline__ void cluster_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  emulated_cluster_wait();
#endif
}

// The starts of the seed's steps, in shared memory behind what the products need.
template <int QUADS>
__device__ __forceinline__ const int* keep_starts(const Arguments& a, int seed) {
  constexpr int SHARES = LAYER_THREADS / QUADS;
  int* starts = (int*)((float*)shared_memory + TILE * SHARES * GAP + 4 * TILE * LAYER_THREADS);
  for (int t = threadIdx.x; t <= a.steps; t += LAYER_THREADS) starts[t] = start_of(a, seed, t);
  __syncthreads();
  return starts;
}

// sums[share][row][column] in shared memory, of a product of `rows` rows with the weights in registers.
template <int QUADS>
__device__ __forceinline__ const float* held_product(const float4 (&weights)[TERMS], const float* from, long long pitch, int rows) {
  constexpr int SHARES = LAYER_THREADS / QUADS, DEEP = SHARES * TERMS, WIDE = SHARES * GAP;
  float *given = (float*)shared_memory, *sums = given + TILE * WIDE;
  for (int at = threadIdx.x; at < rows * (DEEP / 4); at += LAYER_THREADS) {
    const int row = at / (DEEP / 4), k = 4 * (at % (DEEP / 4));
    *(float4*)(given + row * WIDE + k / TERMS * GAP + k % TERMS) = __ldcg((const float4*)(from + row * pitch + k));
  }
  __syncthreads();
  const int quad = threadIdx.x % QUADS, share = threadIdx.x / QUADS;
#pragma unroll 2
  for (int row = 0; row < rows; row++) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < TERMS; k += 4) {
      const float4 x = *(const float4*)(given + row * WIDE + share * GAP + k);
      const float xs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float4 w = weights[k + j];
        sum = make_float4(__fmaf_rn(xs[j], w.x, sum.x), __fmaf_rn(xs[j], w.y, sum.y), __fmaf_rn(xs[j], w.z, sum.z), __fmaf_rn(xs[j], w.w, sum.w));
      }
    }
    *(float4*)(sums + ((share * TILE + row) * QUADS + quad) * 4) = sum;
  }
  __syncthreads();
  return sums;
}

// Grid: CLUSTER x tiles of TILE rows, S.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(LAYER_THREADS, 1) lstm_layer(const __grid_constant__ Arguments a) {
  constexpr int QUADS = UNITS, SHARES = LAYER_THREADS / QUADS;
  const int seed = blockIdx.y, layer = a.layer, first_unit = UNITS * (blockIdx.x % CLUSTER), first = TILE * (blockIdx.x / CLUSTER);
  const int* starts = keep_starts<QUADS>(a, seed);
  const long long all = (long long)a.steps * a.batch;
  float4 weights[TERMS];
  const float* packed = a.packed + seed * PACKED + ahead(layer) + (long long)(IP + HP) * G + 4 * (first_unit + threadIdx.x % QUADS);
#pragma unroll
  for (int k = 0; k < TERMS; k++) weights[k] = *(const float4*)(packed + (long long)(threadIdx.x / QUADS * TERMS + k) * G);
  float* hidden = a.hidden + seed * (a.batch + all) * LH + layer * HP;
  float* cells = a.cell + (seed * L + layer) * (a.batch + all) * HP + first_unit;
  float* gates = a.gates + (seed * L + layer) * all * G + 4 * first_unit;
  float c[OWN];
  for (int n = 0; n < OWN; n++) {
    const int at = threadIdx.x + n * LAYER_THREADS, place = first + at / UNITS;
    c[n] = at < TILE * UNITS && place < a.batch ? cells[(long long)place * HP + at % UNITS] : 0.0f;
  }
  for (int step = 0; step < a.steps; step++) {
    const int start = starts[step], rows = min(TILE, starts[step + 1] - start - first);
    if (rows <= 0) break;  // so it is for all blocks of the cluster, and in all later steps
    float4 z[OWN];
    for (int n = 0; n < OWN; n++) {
      const int at = threadIdx.x + n * LAYER_THREADS, row = at / UNITS;
      if (row < rows) z[n] = *(const float4*)(gates + (long long)(start + first + row) * G + 4 * (at % UNITS));
    }
    const int before = (step > 0 ? a.batch + starts[step - 1] : 0) + first;
    const float* sums = held_product<QUADS>(weights, hidden + (long long)before * LH, LH, rows);
    for (int n = 0; n < OWN; n++) {
      const int at = threadIdx.x + n * LAYER_THREADS, row = at / UNITS, unit = at % UNITS;
      if (row >= rows) continue;
      for (int share = 0; share < SHARES; share++) {
        const float4 more = *(const float4*)(sums + ((share * TILE + row) * QUADS + unit) * 4);
        z[n] = make_float4(z[n].x + more.x, z[n].y + more.y, z[n].z + more.z, z[n].w + more.w);
      }
      const float i = sigmoid(z[n].x), f = sigmoid(z[n].y), g = tanhf(z[n].z), o = sigmoid(z[n].w);
      const int now = start + first + row;
      c[n] = __fmaf_rn(f, c[n], i * g);
      *(float4*)(gates + (long long)now * G + 4 * unit) = make_float4(i, f, g, o);
      cells[(long long)(a.batch + now) * HP + unit] = c[n];
      hidden[(long long)(a.batch + now) * LH + first_unit + unit] = o * tanhf(c[n]);
    }
    cluster_wait();
  }
}

// Grid as forward.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(LAYER_THREADS, 1) lstm_layer_back(const __grid_constant__ Arguments a) {
  constexpr int QUADS = UNITS / 4, SHARES = LAYER_THREADS / QUADS;
  const int seed = blockIdx.y, layer = a.layer, first_unit = UNITS * (blockIdx.x % CLUSTER), first = TILE * (blockIdx.x / CLUSTER);
  const int* starts = keep_starts<QUADS>(a, seed);
  const long long all = (long long)a.steps * a.batch;
  float4 weights[TERMS];
  const float* packed = a.packed + seed * PACKED + back(layer) + (long long)G * HP + first_unit + 4 * (threadIdx.x % QUADS);
#pragma unroll
  for (int k = 0; k < TERMS; k++) weights[k] = *(const float4*)(packed + (long long)(threadIdx.x / QUADS * TERMS + k) * HP);
  float* gates = a.gates + (seed * L + layer) * all * G;
  const float* cells = a.cell + (seed * L + layer) * (a.batch + all) * HP + first_unit;
  const float* d_above = a.d_hidden + seed * all * LH + layer * HP + first_unit;
  float d_after[OWN] = {};
  for (int step = a.steps - 1; step >= -1; step--) {
    const int start = step >= 0 ? starts[step] : 0, end = starts[step + 1];
    const int rows = min(TILE, (step >= 0 ? end - start : a.batch) - first);
    if (rows <= 0) continue;  // so it is for all blocks of the cluster
    const int later = step + 1 < a.steps ? min(TILE, starts[step + 2] - end - first) : 0;  // rows that went on
    const int before = step > 0 ? a.batch + starts[step - 1] : 0;
    float4 was[OWN];  // i, f, g, o
    float c[OWN], c_before[OWN], d_hidden[OWN] = {};
    for (int n = 0; n < OWN; n++) {
      const int at = threadIdx.x + n * LAYER_THREADS, place = first + at / UNITS, unit = at % UNITS;
      if (step < 0 || at / UNITS >= rows) continue;
      was[n] = *(const float4*)(gates + (long long)(start + place) * G + 4 * (first_unit + unit));
      c[n] = cells[(long long)(a.batch + start + place) * HP + unit];
      c_before[n] = cells[(long long)(before + place) * HP + unit];
      d_hidden[n] = d_above[(long long)(start + place) * LH + unit];
    }
    const float* sums = later > 0 ? held_product<QUADS>(weights, gates + (long long)(end + first) * G, G, later) : nullptr;
    for (int n = 0; n < OWN; n++) {
      const int at = threadIdx.x + n * LAYER_THREADS, row = at / UNITS, unit = at % UNITS, place = first + row;
      if (row >= rows) continue;
      if (row < later) {
        for (int share = 0; share < SHARES; share++) d_hidden[n] += sums[(share * TILE + row) * UNITS + unit];
      }
      if (step < 0) {
        float* to = a.d_start + ((seed * 2LL * L + layer) * a.batch + place) * HP + first_unit + unit;
        to[0] = d_hidden[n];
        to[(long long)L * a.batch * HP] = d_after[n];
        continue;
      }
      const float squashed = tanhf(c[n]), d_c = __fmaf_rn(d_hidden[n] * was[n].w, 1.0f - squashed * squashed, d_after[n]);
      *(float4*)(gates + (long long)(start + place) * G + 4 * (first_unit + unit)) = make_float4(
          d_c * was[n].z * was[n].x * (1.0f - was[n].x), d_c * c_before[n] * was[n].y * (1.0f - was[n].y),
          d_c * was[n].x * (1.0f - was[n].z * was[n].z), d_hidden[n] * squashed * was[n].w * (1.0f - was[n].w));
      d_after[n] = d_c * was[n].y;
    }
    cluster_wait();
  }
}
#endif

// --- output layer and loss -----------------------------------------------------------------------------------------------

__device__ __forceinline__ float over_warp(float x) {
  for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(0xffffffffu, x, bit);
  return x;
}

// Logits of a row, and its cost and gradient if there are targets. A warp has a row. Grid: any, S.
extern "C" __global__ void __launch_bounds__(THREADS) lstm_outputs(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32, rows = rows_of(a, seed);
  float* logits = (float*)shared_memory + warp * O;
  const long long all = (long long)a.steps * a.batch;
  const float* weights = a.packed + seed * PACKED + OUTPUT_PACKED;
  const float* biases = a.parameters + seed * P + OUTPUT_BIAS;
  for (int row = blockIdx.x * (THREADS / 32) + warp; row < rows; row += gridDim.x * (THREADS / 32)) {
    const float* hidden = a.hidden + (seed * (a.batch + all) + a.batch + row) * LH;
    for (int output = 0; output < O; output++) {
      float sum = 0;
      for (int k = 4 * lane; k < LH; k += 128) {
        const float4 h = *(const float4*)(hidden + k), w = *(const float4*)(weights + (long long)output * LH + k);
        sum = __fmaf_rn(h.x, w.x, __fmaf_rn(h.y, w.y, __fmaf_rn(h.z, w.z, __fmaf_rn(h.w, w.w, sum))));
      }
      sum = over_warp(sum);
      if (lane == 0) logits[output] = sum + biases[output];
    }
    __syncwarp();
    const long long from = seed * all + a.origin[seed * all + row];
    if (a.outputs != nullptr) {
      for (int output = lane; output < O; output += 32) a.outputs[from * O + output] = logits[output];
    }
    if (a.targets != nullptr) {
      const float* targets = a.targets + from * O;
      float* d_logits = a.d_logits + (seed * all + row) * O;
      const bool scored = a.mask[from] != 0.0f;
      const float share = scored ? 1.0f / a.batch : 0.0f;
      float cost = 0;
      if (!scored) {
        for (int output = lane; output < O; output += 32) d_logits[output] = 0.0f;
      } else if (a.loss == BINARY) {
        for (int output = lane; output < O; output += 32) {
          const float x = logits[output], y = targets[output];
          cost += fmaxf(x, 0.0f) - x * y + log1pf(expf(-fabsf(x)));
          d_logits[output] = (sigmoid(x) - y) * share;
        }
        cost = over_warp(cost);
      } else {
        float most = logits[0], sum = 0, weight = 0;
        for (int output = 1; output < O; output++) most = fmaxf(most, logits[output]);
        for (int output = 0; output < O; output++) {
          sum += expf(logits[output] - most);
          weight += targets[output];
        }
        const float log_sum = most + logf(sum);
        for (int output = lane; output < O; output += 32) {
          cost += targets[output] * (log_sum - logits[output]);
          d_logits[output] = (weight * expf(logits[output] - log_sum) - targets[output]) * share;
        }
        cost = over_warp(cost);
      }
      if (lane == 0) a.row_costs[seed * all + row] = cost;
    }
    __syncwarp();
  }
}

// d_hidden of all layers from the output layer. Grid: any, S.
extern "C" __global__ void __launch_bounds__(THREADS) lstm_outputs_back(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.y;
  const long long all = (long long)a.steps * a.batch, size = (long long)rows_of(a, seed) * (LH / 4);
  const float* weights = a.packed + seed * PACKED + OUTPUT_PACKED;
  for (long long at = (long long)blockIdx.x * THREADS + threadIdx.x; at < size; at += (long long)gridDim.x * THREADS) {
    const long long row = at / (LH / 4);
    const int k = 4 * (at % (LH / 4));
    const float* d_logits = a.d_logits + (seed * all + row) * O;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int output = 0; output < O; output++) {
      const float4 w = *(const float4*)(weights + (long long)output * LH + k);
      const float d = d_logits[output];
      sum = make_float4(__fmaf_rn(d, w.x, sum.x), __fmaf_rn(d, w.y, sum.y), __fmaf_rn(d, w.z, sum.z), __fmaf_rn(d, w.w, sum.w));
    }
    *(float4*)(a.d_hidden + (seed * all + row) * LH + k) = sum;
  }
}

// Gradients of the output layer's weights and of all biases. A block has 64 columns; threads of four shares of the rows,
// added in their order. Grid: tiles of LH columns, then of L G; groups of 8 outputs; S.
extern "C" __global__ void __launch_bounds__(THREADS) lstm_sums(const __grid_constant__ Arguments a) {
  constexpr int COLUMNS = 64, SHARES = THREADS / COLUMNS, MOST = 8, HIDDEN_TILES = (LH + COLUMNS - 1) / COLUMNS;
  float(*partial)[MOST][COLUMNS] = (float(*)[MOST][COLUMNS])shared_memory;
  const int seed = blockIdx.z, x = threadIdx.x % COLUMNS, share = threadIdx.x / COLUMNS, rows = rows_of(a, seed);
  const long long all = (long long)a.steps * a.batch;
  const bool biases = blockIdx.x >= HIDDEN_TILES;
  if (biases && blockIdx.y > 0) return;
  const int column = (biases ? blockIdx.x - HIDDEN_TILES : blockIdx.x) * COLUMNS + x, first = MOST * blockIdx.y;
  const int layer = column / G;  // of a bias
  const bool inside = column < (biases ? L * G : LH);
  float sums[MOST] = {};
  if (inside && biases) {
    const float* from = a.gates + (seed * L + layer) * all * G + column % G;
#pragma unroll 4
    for (int row = share; row < rows; row += SHARES) sums[0] += from[(long long)row * G];
  } else if (inside) {
    const float* hidden = a.hidden + (seed * (a.batch + all) + a.batch) * LH + column;
    const float* d_logits = a.d_logits + seed * all * O + first;
#pragma unroll 2
    for (int row = share; row < rows; row += SHARES) {
      const float h = hidden[(long long)row * LH];
#pragma unroll
      for (int n = 0; n < MOST; n++) {
        if (first + n < O) sums[n] = __fmaf_rn(h, d_logits[(long long)row * O + n], sums[n]);
      }
    }
  }
  for (int n = 0; n < MOST; n++) partial[share][n][x] = sums[n];
  __syncthreads();
  if (share > 0 || !inside) return;
  for (int n = 0; n < (biases ? 1 : MOST); n++) {
    float sum = 0;
    for (int part = 0; part < SHARES; part++) sum += partial[part][n][x];
    if (biases) {
      const int unit = column % G / 4;
      if (unit < H) a.gradient[seed * P + bias_offset(layer) + (column % 4) * H + unit] = sum;
    } else if (first + n < O && column % HP < H) {
      a.gradient[seed * P + OUTPUT + ((long long)(first + n) * L + column / HP) * H + column % HP] = sum;
    }
  }
}

// Costs of sequences, gradients of the initial states and of the output bias. Grid: any, S.
extern "C" __global__ void __launch_bounds__(THREADS) lstm_ends(const __grid_constant__ Arguments a) {
  const int seed = blockIdx.y, first = blockIdx.x * THREADS + threadIdx.x, stride = gridDim.x * THREADS;
  const long long all = (long long)a.steps * a.batch;
  const int rows = rows_of(a, seed);
  for (int b = first; b < a.batch; b += stride) {
    const int steps = a.lengths[(long long)seed * a.batch + b], place = a.places[(long long)seed * a.batch + b];
    float sum = 0;
    for (int t = 0; t < steps; t++) sum += a.row_costs[seed * all + start_of(a, seed, t) + place];
    a.costs[(long long)seed * a.batch + b] = sum;
  }
  for (int at = first; at < 2 * L * H; at += stride) {
    float sum = 0;
    const float* from = a.d_start + (seed * 2LL * L + at / H) * a.batch * HP + at % H;
    for (int place = 0; place < a.batch; place++) sum += from[(long long)place * HP];
    a.gradient[seed * P + INITIAL + at] = sum;
  }
  if (blockIdx.x > 0) return;
  const int lane = threadIdx.x % 32;
  for (int output = threadIdx.x / 32; output < O; output += THREADS / 32) {  // a warp for an output
    float sum = 0;
    for (int row = lane; row < rows; row += 32) sum += a.d_logits[(seed * all + row) * O + output];
    sum = over_warp(sum);
    if (lane == 0) a.gradient[seed * P + OUTPUT_BIAS + output] = sum;
  }
}
