#include "gpu_backend/cuda/kernels/exact_sums.hpp"
#include "gpu_backend/cuda/kernels/rope.cuh"
#include "gpu_backend/cuda/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/row_block.cuh"

namespace mfsdp::cuda {
namespace {

using kernels::ColumnSums;
using kernels::HeadRows;
using kernels::QkRowNormRopeBackward;
using kernels::QkRowNormRopeForward;
using kernels::RopeShape;

constexpr int kMostThreads = 512;  // so that a thread has 128 registers
constexpr int kMostWarps = kMostThreads / kWarp;

/// Maximum number of threads of a block, by the packs in registers of each; 0: not supported.
struct MostThreads {
  int of_one = 0;
  int of_two = 0;
  int of_four = 0;

  [[nodiscard]] constexpr int of(int packs) const {
    return packs == 1 ? of_one : packs == 2 ? of_two : of_four;
  }
  /// The fewest packs with which a block can process `items`; 0: none.
  [[nodiscard]] constexpr int packs_for(std::int64_t items) const {
    for (const int packs : {1, 2, 4})
      if (ceil_div(items, packs) <= of(packs)) return packs;
    return 0;
  }
};
/// Small blocks in forward, so that several are resident at once
/// (docs/lab/2026-11-28-row-norms.md).
constexpr MostThreads kForwardThreads{.of_one = 256, .of_two = 256, .of_four = 256};
/// With two packs, as many threads as 80 heads of 128 need (OLMo-2-13B), which leaves 200 registers
/// per thread.
constexpr MostThreads kBackwardThreads{.of_one = kMostThreads, .of_two = 320};
constexpr std::size_t kSharedPartials = 32 << 10;  ///< bytes; in addition to static shared memory

/// Divides a token's heads into packs of pairs, which belong to the same threads in every pass.
/// Calls use(head, place of the pack).
template <int N, class Use>
__device__ void for_packs(const RopeShape& s, const HeadPairs& pairs, const Use& use) {
  const int packs = pairs.all / N;
  const auto items = static_cast<int>(s.heads) * packs;
  for (auto item = static_cast<int>(threadIdx.x); item < items;
       item += static_cast<int>(blockDim.x))
    use(item / packs, PairPlace(pairs, item % packs * N));
}

/// Both halves of a pack of pairs.
template <class T, int N>
__device__ void load_pairs(const T* head, const PairPlace& at, float (&to)[2][N]) {
  load_widened<N>(head + at.first, to[0]);
  load_widened<N>(head + at.second, to[1]);
}
template <class T, int N>
__device__ void store_pairs(T* head, const PairPlace& at, const float (&from)[2][N]) {
  store_narrowed<N>(head + at.first, from[0]);
  store_narrowed<N>(head + at.second, from[1]);
}

/// The head's part of its kind's weight.
template <class K>
__device__ auto weight_of(const K& k, int head) {
  return head < k.query_heads ? k.query_weight + head * k.shape.head_dim
                              : k.key_weight + (head - k.query_heads) * k.shape.head_dim;
}

/// Number of columns that are normed together: those of queries, or those of keys.
template <class K>
__device__ float columns_of(const K& k, bool queries) {
  return static_cast<float>((queries ? k.query_heads : k.shape.heads - k.query_heads) *
                            k.shape.head_dim);
}

/// The head's part of the row in which this block sums the gradient of its kind's weight.
template <class T>
__device__ float* partials_of(const QkRowNormRopeBackward<T, float>& k, int head) {
  const std::int64_t query_columns = k.query_heads * k.shape.head_dim;
  const std::int64_t key_columns = k.shape.heads * k.shape.head_dim - query_columns;
  if (head < k.query_heads)
    return k.partials + blockIdx.x * query_columns + head * k.shape.head_dim;
  return k.partials + k.partial_rows * query_columns + blockIdx.x * key_columns +
         (head - k.query_heads) * k.shape.head_dim;
}

// ---- a token in the registers of a block -------------------------------------------------------

/// Calls use(v, head, place) with this thread's packs of pairs: kItems, or one fewer.
template <int N, int kItems, class Use>
__device__ void for_own_packs(const RopeShape& s, const HeadPairs& pairs, const Use& use) {
  const int packs = pairs.all / N;
  const auto items = static_cast<int>(s.heads) * packs;
#pragma unroll
  for (int v = 0; v < kItems; ++v) {
    const auto item = static_cast<int>(threadIdx.x + v * blockDim.x);
    if (item < items) use(v, item / packs, PairPlace(pairs, item % packs * N));
  }
}

template <class T, int N>
__device__ void load_pack(const T* head, const PairPlace& at, Pack<T, N> (&to)[2]) {
  to[0] = load<T, N>(head + at.first);
  to[1] = load<T, N>(head + at.second);
}

/// Sums over a block, separately for queries and keys, in each thread.
__device__ void block_sums(float (&sums)[2], float (&shared)[2][kMostWarps]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
#pragma unroll
  for (int kind = 0; kind < 2; ++kind) {
    const float sum = warp_sum(sums[kind]);
    if (lane == 0) shared[kind][threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int kind = 0; kind < 2; ++kind)
    sums[kind] = warp_sum(lane < warps ? shared[kind][lane] : 0.0F);
}

template <class T, int N, int kItems>
__global__ void __launch_bounds__(kForwardThreads.of(kItems))
    forward_in_registers(const QkRowNormRopeForward<T, float> k) {
  __shared__ float shared[2][kMostWarps];
  const HeadPairs pairs(k.shape);
  const float* const angles = k.table + k.shape.position(blockIdx.x) * k.shape.turned;
  const T* const in = k.in.data + blockIdx.x * k.in.row;
  T* const out = k.out.data + blockIdx.x * k.out.row;
  Pack<T, N> x[kItems][2];
  Pack<T, N> w[kItems][2];
  float sums[2] = {};
  for_own_packs<N, kItems>(k.shape, pairs, [&](int v, int head, const PairPlace& at) {
    load_pack<T, N>(in + head * k.in.head, at, x[v]);
    load_pack<T, N>(weight_of(k, head), at, w[v]);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < N; ++i)
      squares +=
          element(x[v][0], i) * element(x[v][0], i) + element(x[v][1], i) * element(x[v][1], i);
    sums[0] += head < k.query_heads ? squares : 0;
    sums[1] += head < k.query_heads ? 0 : squares;
  });
  block_sums(sums, shared);
  float rstd[2];
#pragma unroll
  for (int kind = 0; kind < 2; ++kind) {
    rstd[kind] = 1 / sqrtf(sums[kind] / columns_of(k, kind == 0) + k.epsilon);
    if (threadIdx.x == 0) k.rstd[2 * blockIdx.x + kind] = rstd[kind];
  }
  for_own_packs<N, kItems>(k.shape, pairs, [&](int v, int head, const PairPlace& at) {
    const float scale = head < k.query_heads ? rstd[0] : rstd[1];
    float y[2][N];
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < N; ++i)
        y[h][i] = element(x[v][h], i) * (scale * (k.weight_offset + element(w[v][h], i)));
    if (at.turns) turn(angles + at.angle, pairs.turning, false, y[0], y[1]);
    store_pairs(out + head * k.out.head, at, y);
  });
}

/// Block b processes the tokens b, b + partial_rows, ... Its part of the weights' gradients stays
/// in registers. The next token is loaded while this one is summed, if registers suffice.
template <class T, int N, int kItems>
__global__ void __launch_bounds__(kBackwardThreads.of(kItems))
    backward_in_registers(const QkRowNormRopeBackward<T, float> k) {
  constexpr bool kAhead = kItems == 1;
  __shared__ float shared[2][2][kMostWarps];  // double-buffered, so that a token needs one barrier
  const RopeShape& s = k.shape;
  const HeadPairs pairs(s);
  Pack<T, N> w[kItems][2];
  Pack<T, N> next_dy[kItems][2];
  Pack<T, N> next_x[kItems][2];
  float next_rstd[2] = {};
  float partial[kItems][2][N] = {};
  for_own_packs<N, kItems>(s, pairs, [&](int v, int head, const PairPlace& at) {
    load_pack<T, N>(weight_of(k, head), at, w[v]);
  });
  const auto fetch = [&](std::int64_t token) {
    for_own_packs<N, kItems>(s, pairs, [&](int v, int head, const PairPlace& at) {
      load_pack<T, N>(k.gradient.data + token * k.gradient.row + head * k.gradient.head, at,
                      next_dy[v]);
      load_pack<T, N>(k.in.data + token * k.in.row + head * k.in.head, at, next_x[v]);
    });
    next_rstd[0] = k.rstd[2 * token];
    next_rstd[1] = k.rstd[2 * token + 1];
  };
  std::int64_t token = blockIdx.x;
  if (kAhead && token < s.tokens) fetch(token);
  for (int in_turn = 0; token < s.tokens; token += k.partial_rows, in_turn ^= 1) {
    if (!kAhead) fetch(token);
    const float rstd[2] = {next_rstd[0], next_rstd[1]};
    const float* const angles = k.table + s.position(token) * s.turned;
    float dy[kItems][2][N];  // of the norm's output
    Pack<T, N> x[kItems][2];
    float dots[2] = {};
    for_own_packs<N, kItems>(s, pairs, [&](int v, int head, const PairPlace& at) {
      const bool queries = head < k.query_heads;
      float dot = 0;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        widen_all(next_dy[v][h], dy[v][h]);
        x[v][h] = next_x[v][h];
      }
      if (at.turns) turn(angles + at.angle, pairs.turning, true, dy[v][0], dy[v][1]);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float part = dy[v][h][i] * element(x[v][h], i);
          dot += (k.weight_offset + element(w[v][h], i)) * part;
          partial[v][h][i] += part * (queries ? rstd[0] : rstd[1]);
        }
      dots[0] += queries ? dot : 0;
      dots[1] += queries ? 0 : dot;
    });
    if (kAhead && token + k.partial_rows < s.tokens) fetch(token + k.partial_rows);
    block_sums(dots, shared[in_turn]);
    float shrink[2];
#pragma unroll
    for (int kind = 0; kind < 2; ++kind)
      shrink[kind] = dots[kind] * rstd[kind] * rstd[kind] * rstd[kind] / columns_of(k, kind == 0);
    for_own_packs<N, kItems>(s, pairs, [&](int v, int head, const PairPlace& at) {
      const bool queries = head < k.query_heads;
      const float scale = queries ? rstd[0] : rstd[1];
      const float less = queries ? shrink[0] : shrink[1];
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < N; ++i)
          dy[v][h][i] = scale * (k.weight_offset + element(w[v][h], i)) * dy[v][h][i] -
                        element(x[v][h], i) * less;
      store_pairs(k.gradient.data + token * k.gradient.row + head * k.gradient.head, at, dy[v]);
    });
  }
  for_own_packs<N, kItems>(s, pairs, [&](int v, int head, const PairPlace& at) {
    float* const out = partials_of(k, head);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      out[at.first + i] = partial[v][0][i];
      out[at.second + i] = partial[v][1][i];
    }
  });
}

// ---- tokens of any size ------------------------------------------------------------------------

template <class T, int N>
__global__ void __launch_bounds__(kMostThreads) forward(const QkRowNormRopeForward<T, float> k) {
  __shared__ float shared[2][kMostWarps];
  const HeadPairs pairs(k.shape);
  const float* const angles = k.table + k.shape.position(blockIdx.x) * k.shape.turned;
  const T* const in = k.in.data + blockIdx.x * k.in.row;
  T* const out = k.out.data + blockIdx.x * k.out.row;
  float squares[2] = {};  // of queries, of keys
  for_packs<N>(k.shape, pairs, [&](int head, const PairPlace& at) {
    float x[2][N];
    load_pairs(in + head * k.in.head, at, x);
    float& sum = squares[head < k.query_heads ? 0 : 1];
#pragma unroll
    for (int i = 0; i < N; ++i) sum += x[0][i] * x[0][i] + x[1][i] * x[1][i];
  });
  float rstd[2];
#pragma unroll
  for (int kind = 0; kind < 2; ++kind) {
    const float mean = block_sum(squares[kind], shared[kind]) / columns_of(k, kind == 0);
    rstd[kind] = 1 / sqrtf(mean + k.epsilon);
    if (threadIdx.x == 0) k.rstd[2 * blockIdx.x + kind] = rstd[kind];
  }
  for_packs<N>(k.shape, pairs, [&](int head, const PairPlace& at) {
    float x[2][N];
    float w[2][N];
    load_pairs(in + head * k.in.head, at, x);
    load_pairs(weight_of(k, head), at, w);
    const float scale = head < k.query_heads ? rstd[0] : rstd[1];
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < N; ++i) x[h][i] *= scale * (k.weight_offset + w[h][i]);
    if (at.turns) turn(angles + at.angle, pairs.turning, false, x[0], x[1]);
    store_pairs(out + head * k.out.head, at, x);
  });
}

/// Block b processes the tokens b, b + partial_rows, ... Each thread sums the weights' gradients of
/// its own columns, in shared memory if they fit (`shared_partials`), else in their row.
template <class T, int N>
__global__ void __launch_bounds__(kMostThreads)
    backward(const QkRowNormRopeBackward<T, float> k, bool shared_partials) {
  extern __shared__ float row[];              // queries' columns, then keys'
  __shared__ float shared[2][2][kMostWarps];  // double-buffered, so that tokens need no barrier
                                              // between
  const RopeShape& s = k.shape;
  const HeadPairs pairs(s);
  const auto partial_of = [&](int head) {
    return shared_partials ? row + head * s.head_dim : partials_of(k, head);
  };
  for_packs<N>(s, pairs, [&](int head, const PairPlace& at) {
    float* const partial = partial_of(head);
#pragma unroll
    for (int i = 0; i < N; ++i) partial[at.first + i] = partial[at.second + i] = 0;
  });
  int turn_of_shared = 0;
  for (std::int64_t token = blockIdx.x; token < s.tokens;
       token += k.partial_rows, turn_of_shared ^= 1) {
    const float* const angles = k.table + s.position(token) * s.turned;
    T* const gradient = k.gradient.data + token * k.gradient.row;
    const T* const in = k.in.data + token * k.in.row;
    const float rstd[2] = {k.rstd[2 * token], k.rstd[2 * token + 1]};
    // The gradient of the norm's output, and its input.
    const auto load_both = [&](int head, const PairPlace& at, float(&dy)[2][N], float(&x)[2][N]) {
      load_pairs(gradient + head * k.gradient.head, at, dy);
      if (at.turns) turn(angles + at.angle, pairs.turning, true, dy[0], dy[1]);
      load_pairs(in + head * k.in.head, at, x);
    };
    float dots[2] = {};
    for_packs<N>(s, pairs, [&](int head, const PairPlace& at) {
      float dy[2][N];
      float x[2][N];
      float w[2][N];
      load_both(head, at, dy, x);
      load_pairs(weight_of(k, head), at, w);
      const int kind = head < k.query_heads ? 0 : 1;
      float* const partial = partial_of(head);
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float part = dy[h][i] * x[h][i];
          dots[kind] += (k.weight_offset + w[h][i]) * part;
          partial[(h == 0 ? at.first : at.second) + i] += part * rstd[kind];
        }
    });
    float shrink[2];
#pragma unroll
    for (int kind = 0; kind < 2; ++kind)
      shrink[kind] = block_sum(dots[kind], shared[turn_of_shared][kind]) * rstd[kind] * rstd[kind] *
                     rstd[kind] / columns_of(k, kind == 0);
    for_packs<N>(s, pairs, [&](int head, const PairPlace& at) {
      float dy[2][N];
      float x[2][N];
      float w[2][N];
      load_both(head, at, dy, x);
      load_pairs(weight_of(k, head), at, w);
      const int kind = head < k.query_heads ? 0 : 1;
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int i = 0; i < N; ++i)
          dy[h][i] = rstd[kind] * (k.weight_offset + w[h][i]) * dy[h][i] - x[h][i] * shrink[kind];
      store_pairs(gradient + head * k.gradient.head, at, dy);
    });
  }
  if (!shared_partials) return;
  for_packs<N>(s, pairs, [&](int head, const PairPlace& at) {
    const float* const partial = partial_of(head);
    float* const out = partials_of(k, head);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      out[at.first + i] = partial[at.first + i];
      out[at.second + i] = partial[at.second + i];
    }
  });
}

/// Calls `run` with the pairs of a pack, the packs in a thread's registers (0: a token does not fit
/// into registers), and the threads of a block.
template <class T, class Run>
Result<void> with_packs(std::string_view kernel, const RopeShape& s,
                        std::initializer_list<const void*> pointers,
                        std::initializer_list<std::int64_t> strides, const MostThreads& most,
                        const Run& run) {
  constexpr int N = kPack<T>;
  using Packs = std::integral_constant<int, N>;
  using None = std::integral_constant<int, 0>;
  const auto whole_warps = [](std::int64_t items) { return ceil_div(items, kWarp) * kWarp; };
  const auto threads = [&](std::int64_t items) {
    return static_cast<unsigned>(std::min<std::int64_t>(kMostThreads, whole_warps(items)));
  };
  const std::int64_t pairs = s.heads * s.head_dim / 2;
  const std::int64_t items = pairs / N;
  const bool packs =
      s.head_dim / 2 % N == 0 && s.turned / 2 % N == 0 && is_aligned(pointers, 16) &&
      std::ranges::all_of(strides, [](std::int64_t elements) { return elements % N == 0; });
  const int own = packs ? most.packs_for(items) : 0;
  if (!packs)
    run(std::integral_constant<int, 1>{}, None{}, threads(pairs));
  else if (own > 0)
    with_vectors(own, [&](auto v) { run(Packs{}, v, threads(ceil_div(items, v()))); });
  else
    run(Packs{}, None{}, threads(items));
  return launched(kernel);
}

/// The rows between the first of the queries' partials and the last of the keys' belong to one
/// piece; all pieces have equally many.
template <class T>
Result<void> exact_backward(const QkRowNormRopeBackward<T, float>& k, cudaStream_t stream,
                            ExactOutlier* outlier) {
  const RopeShape& s = k.shape;
  const std::int64_t queries = k.query_heads * s.head_dim;
  const std::int64_t keys = s.heads * s.head_dim - queries;
  const std::int64_t piece = k.pieces.rows;
  const std::int64_t partial_rows = std::min(piece, k.partial_rows) - 1;
  MFSDP_TRY(check_exact_rows("qk_row_norm_rope_backward", partial_rows));
  float* const after_first = k.partials + queries;
  float* const last = k.partials + k.partial_rows * (queries + keys) - keys;
  for (std::int64_t begin = 0; begin < s.tokens; begin += piece) {
    QkRowNormRopeBackward<T, float> part = k;
    part.shape = s.piece(begin, piece);
    part.partial_rows = partial_rows;
    part.gradient.data += begin * k.gradient.row;
    part.in.data += begin * k.in.row;
    part.rstd += begin * 2;
    part.partials = after_first;
    part.pieces = {};
    MFSDP_TRY(qk_row_norm_rope_backward(part, stream, outlier));
    ColumnSums<float, float> sums{.rows = partial_rows,
                                  .cols = queries,
                                  .in = after_first,
                                  .adds = begin > 0,
                                  .out = k.partials,
                                  .pieces = {.rows = partial_rows, .grid = k.pieces.grid}};
    MFSDP_TRY(sum_on_grid(sums, KernelKind::qk_row_norm_rope_backward, outlier, stream));
    sums.in += partial_rows * queries;
    sums.cols = keys;
    sums.out = last;
    MFSDP_TRY(sum_on_grid(sums, KernelKind::qk_row_norm_rope_backward, outlier, stream));
  }
  return zero(after_first, last - after_first, "qk_row_norm_rope_backward", stream);
}

}  // namespace

template <class T>
Result<void> qk_row_norm_rope_forward(const QkRowNormRopeForward<T, float>& k,
                                      cudaStream_t stream) {
  const RopeShape& s = k.shape;
  if (s.tokens == 0 || s.heads == 0 || s.head_dim == 0) return {};
  return with_packs<T>("qk_row_norm_rope_forward", s,
                       {k.in.data, k.out.data, k.query_weight, k.key_weight, k.table},
                       {k.in.row, k.in.head, k.out.row, k.out.head}, kForwardThreads,
                       [&](auto n, auto items, unsigned threads) {
                         const dim3 grid = grid_of(s.tokens);
                         if constexpr (items() == 0)
                           forward<T, n()><<<grid, threads, 0, stream>>>(k);
                         else
                           forward_in_registers<T, n(), items()><<<grid, threads, 0, stream>>>(k);
                       });
}

template <class T>
Result<void> qk_row_norm_rope_backward(const QkRowNormRopeBackward<T, float>& k,
                                       cudaStream_t stream, ExactOutlier* outlier) {
  if (k.pieces.grid) return exact_backward(k, stream, outlier);
  const RopeShape& s = k.shape;
  if (s.heads == 0 || s.head_dim == 0) return {};
  const auto bytes = static_cast<std::size_t>(s.heads * s.head_dim) * sizeof(float);
  const bool fits = bytes <= kSharedPartials;
  return with_packs<T>("qk_row_norm_rope_backward", s,
                       {k.in.data, k.gradient.data, k.query_weight, k.key_weight, k.table},
                       {k.in.row, k.in.head, k.gradient.row, k.gradient.head}, kBackwardThreads,
                       [&](auto n, auto items, unsigned threads) {
                         const dim3 grid = grid_of(k.partial_rows);
                         if constexpr (items() == 0)
                           backward<T, n()><<<grid, threads, fits ? bytes : 0, stream>>>(k, fits);
                         else if constexpr (kBackwardThreads.of(items()) > 0)
                           backward_in_registers<T, n(), items()><<<grid, threads, 0, stream>>>(k);
                       });
}

template Result<void> qk_row_norm_rope_forward(const QkRowNormRopeForward<Bf16, float>&,
                                               cudaStream_t);
template Result<void> qk_row_norm_rope_forward(const QkRowNormRopeForward<Fp16, float>&,
                                               cudaStream_t);
template Result<void> qk_row_norm_rope_forward(const QkRowNormRopeForward<float, float>&,
                                               cudaStream_t);
template Result<void> qk_row_norm_rope_backward(const QkRowNormRopeBackward<Bf16, float>&,
                                                cudaStream_t, ExactOutlier*);
template Result<void> qk_row_norm_rope_backward(const QkRowNormRopeBackward<Fp16, float>&,
                                                cudaStream_t, ExactOutlier*);
template Result<void> qk_row_norm_rope_backward(const QkRowNormRopeBackward<float, float>&,
                                                cudaStream_t, ExactOutlier*);

}  // namespace mfsdp::cuda
