#include "gpu_backend/cuda/kernels/exact_sums.cuh"
#include "gpu_backend/cuda/kernels/tokens.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::EmbeddingBackward;
using kernels::EmbeddingForward;
using kernels::PositionEmbeddingBackward;
using kernels::TokenCopy;
using kernels::TokenPlace;

constexpr int kThreads = 256;

template <class T, int N>
__global__ void copy_rows(const EmbeddingForward<T> k) {
  const std::int64_t token = k.tokens[blockIdx.x] - k.vocab_begin;
  const bool known = token >= 0 && token < k.vocab;
  const T* const from = k.table + (known ? token * k.cols : 0);
  T* const to = k.output + blockIdx.x * k.cols;
  float other[N];
#pragma unroll
  for (int i = 0; i < N; ++i)  // another rank may have the row
    other[i] = k.is_part ? 0.0F : __int_as_float(0x7fffffff);
  for (std::int64_t col = threadIdx.x * N; col < k.cols; col += kThreads * N) {
    float values[N];
    load_widened<N>(from + col, values);
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = known ? k.scale * values[i] : other[i];
    if (k.positions != nullptr) {
      float position[N];
      load_widened<N>(k.positions + k.position(blockIdx.x) * k.cols + col, position);
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] += position[i];
    }
    store_narrowed<N>(to + col, values);
  }
}

constexpr int kOrdered = 4;  ///< tokens whose place in the order one warp finds

/// order[number of tokens before i, in the order of (token, place)] = (token i, i).
__global__ void put_in_order(const std::int32_t* tokens, int count, TokenPlace* order) {
  const int warp = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = warp * kOrdered;
  if (first >= count) return;
  std::int32_t own[kOrdered];
  int before[kOrdered] = {};
#pragma unroll
  for (int i = 0; i < kOrdered; ++i) own[i] = first + i < count ? tokens[first + i] : 0;
#pragma unroll 4
  for (int j = lane; j < count; j += kWarp) {
    const std::int32_t other = tokens[j];
#pragma unroll
    for (int i = 0; i < kOrdered; ++i)
      before[i] += other < own[i] || (other == own[i] && j < first + i) ? 1 : 0;
  }
#pragma unroll
  for (int i = 0; i < kOrdered; ++i) {
    const int rank = warp_sum(before[i]);
    if (lane == i && first + i < count) order[rank] = {.token = own[i], .place = first + i};
  }
}

constexpr int kRowThreads = 128;  ///< small, so that several blocks share a token's rows
constexpr int kAhead = 8;         ///< rows whose loads are in flight at once

/// For a token with many rows, each block of its first kShares entries takes a share of the
/// columns. In a block, kRowLanes threads share the rows of a pack of columns.
constexpr int kShares = kWarp;
constexpr int kRowLanes = kShares;
constexpr int kLanePacks = kRowThreads / kRowLanes;
constexpr int kFrequent = 2 * kShares;  ///< minimum number of rows for this

/// Adds up the rows of `order[at]`, `order[at + step]`, ... that belong to one token.
template <int N, class T, class G>
__device__ void add_rows(const EmbeddingBackward<T, G>& k, int at, int step, std::int64_t col,
                         float (&sum)[N]) {
  const auto count = static_cast<int>(k.order.size());
  const TokenPlace* const order = k.order.data();
  const auto is_same = [&, token = order[at].token](int entry) {
    return entry < count && order[entry].token == token;
  };
  const auto row_at = [&](int entry) {
    return load<T, N>(k.d_output + order[entry].place * k.cols + col);
  };
  const auto add = [&](const auto& row) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += k.scale * element(row, i);
  };
  for (; is_same(at + (kAhead - 1) * step); at += kAhead * step) {
    Pack<T, N> rows[kAhead];
#pragma unroll
    for (int r = 0; r < kAhead; ++r) rows[r] = row_at(at + r * step);
#pragma unroll
    for (int r = 0; r < kAhead; ++r) add(rows[r]);
  }
  for (; is_same(at); at += step) add(row_at(at));
}

/// Writes or adds an element of the gradient.
template <class T, class G>
__device__ float updated(const EmbeddingBackward<T, G>& k, const GridSteps& grid, float before,
                         float sum) {
  if (grid.outlier != nullptr) return grid.added(before, sum);
  return k.adds ? before + sum : sum;
}

/// Block (x, y) belongs to entry x of the order and to slice y of the columns, which has
/// kRowThreads packs. The block of a token's first entry adds up the token's rows.
template <class T, class G, int N>
__global__ void __launch_bounds__(kRowThreads)
    sum_rows(const EmbeddingBackward<T, G> k, const GridSteps grid) {
  const auto count = static_cast<int>(k.order.size());
  const auto at = static_cast<int>(blockIdx.x);
  const TokenPlace* const order = k.order.data();
  const auto token_at = [=](int entry) {
    return entry >= 0 && entry < count ? order[entry].token : -1;
  };
  const std::int32_t token = token_at(at);
  const std::int64_t table_row = token - k.vocab_begin;
  if (token < 0 || table_row < 0 || table_row >= k.vocab) return;
  // Lane i of each warp reads the entry i + 1 before this one. Equal tokens are adjacent.
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned other = ~__ballot_sync(0xffffffffU, token_at(at - 1 - lane) == token);
  const bool frequent_if_first = token_at(at + kFrequent - 1) == token;
  if (other == 0) return;  // at least kShares entries of the token precede this one
  const int share = __ffs(static_cast<int>(other)) - 1;
  const bool is_frequent =
      share == 0 ? frequent_if_first : token_at(at - share + kFrequent - 1) == token;
  const std::int64_t slice = static_cast<std::int64_t>(blockIdx.y) * kRowThreads * N;
  float sum[N] = {};
  if (!is_frequent) {
    const std::int64_t col = slice + static_cast<std::int64_t>(threadIdx.x) * N;
    if (share != 0 || col >= k.cols) return;
    G* const out = k.gradient + table_row * k.cols + col;
    float before[N] = {};
    if (k.adds) load_widened<N>(out, before);
    add_rows(k, at, 1, col, sum);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = updated(k, grid, before[i], sum[i]);
    store_narrowed<N>(out, sum);
    return;
  }
  __shared__ float sums[kRowLanes][kLanePacks * N];
  const int pack = static_cast<int>(threadIdx.x) % kLanePacks;
  const int row_lane = static_cast<int>(threadIdx.x) / kLanePacks;
  const std::int64_t first_col = slice + static_cast<std::int64_t>(share) * kLanePacks * N;
  if (first_col + pack * N < k.cols)
    add_rows(k, at - share + row_lane, kRowLanes, first_col + pack * N, sum);
#pragma unroll
  for (int i = 0; i < N; ++i) sums[row_lane][pack * N + i] = sum[i];
  __syncthreads();
  const auto i = static_cast<int>(threadIdx.x);
  if (i >= kLanePacks * N || first_col + i >= k.cols) return;
  float total = 0;
#pragma unroll 8
  for (int r = 0; r < kRowLanes; ++r) total += sums[r][i];
  G* const out = k.gradient + table_row * k.cols + first_col + i;
  *out = narrowed<G>(updated(k, grid, k.adds ? widened(*out) : 0.0F, total));
}

/// Block x belongs to position x and has slice y of the columns. Sums are in the order of rows. If
/// documents have their own positions, all rows are searched for this position.
template <class T, class G, int N>
__global__ void sum_positions(const PositionEmbeddingBackward<T, G> k, const GridSteps grid) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  const auto position = static_cast<std::int64_t>(blockIdx.x);
  const bool by_documents = k.in_documents != nullptr;
  if (col >= k.cols || (k.adds && position >= k.seq_len)) return;
  G* const out = k.gradient + position * k.cols + col;
  float before[N] = {};
  if (k.adds) load_widened<N>(out, before);
  float sum[N] = {};
  if (position < k.seq_len)
    for (std::int64_t row = by_documents ? 0 : position; row < k.rows;
         row += by_documents ? 1 : k.seq_len) {
      if (by_documents && k.in_documents[row] != position) continue;
      float values[N];
      load_widened<N>(k.d_output + row * k.cols + col, values);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (grid.outlier != nullptr)
          before[i] = grid.added(before[i], values[i]);
        else
          sum[i] += values[i];
      }
    }
#pragma unroll
  for (int i = 0; i < N; ++i) before[i] += sum[i];
  store_narrowed<N>(out, before);
}

}  // namespace

Result<void> token_copy(const TokenCopy& k, cudaStream_t stream) {
  return check(cudaMemcpyAsync(k.to, k.from, static_cast<std::size_t>(k.count) * sizeof(*k.to),
                               cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpyAsync", "token_copy");
}

template <class T>
Result<void> embedding_forward(const EmbeddingForward<T>& k, cudaStream_t stream) {
  const auto rows = static_cast<std::int64_t>(k.tokens.size());
  if (rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.table, k.positions, k.output}, 16))
    copy_rows<T, N><<<grid_of(rows), kThreads, 0, stream>>>(k);
  else
    copy_rows<T, 1><<<grid_of(rows), kThreads, 0, stream>>>(k);
  return launched("embedding_forward");
}

namespace {

/// Adds to the existing gradient if k.adds; rows of tokens that do not occur are unchanged.
template <class T, class G>
Result<void> add_tokens(const EmbeddingBackward<T, G>& k, const GridSteps& grid,
                        cudaStream_t stream) {
  const auto count = static_cast<std::int64_t>(k.tokens.size());
  put_in_order<<<grid_of(ceil_div(ceil_div(count, kOrdered), kThreads / kWarp)), kThreads, 0,
                 stream>>>(k.tokens.data(), static_cast<int>(count), k.order.data());
  MFSDP_TRY(launched("embedding_backward"));
  const auto launch = [&](auto n) {
    const std::int64_t slices = ceil_div(ceil_div(k.cols, n()), kRowThreads);
    sum_rows<T, G, n()><<<grid_of(count, slices), kRowThreads, 0, stream>>>(k, grid);
  };
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.d_output, k.gradient}, 16))
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  return launched("embedding_backward");
}

template <class T>
Result<void> add_pieces(const EmbeddingBackward<T, float>& k, ExactOutlier* outlier,
                        cudaStream_t stream) {
  MFSDP_LET(grid, grid_steps(*k.pieces.grid, KernelKind::embedding_backward, outlier));
  const auto piece = static_cast<std::size_t>(k.pieces.rows);
  for (std::size_t begin = 0; begin < k.tokens.size(); begin += piece) {
    EmbeddingBackward<T, float> part = k;
    part.tokens = k.tokens.subspan(begin, piece);
    part.d_output += static_cast<std::int64_t>(begin) * k.cols;
    part.order = k.order.first(piece);
    part.adds = true;
    MFSDP_TRY(add_tokens(part, grid, stream));
  }
  return {};
}

}  // namespace

template <class T, class G>
Result<void> embedding_backward(const EmbeddingBackward<T, G>& k, cudaStream_t stream,
                                ExactOutlier* outlier) {
  if (!k.adds)
    MFSDP_TRY(check(cudaMemsetAsync(k.gradient, 0,
                                    static_cast<std::size_t>(k.vocab * k.cols) * sizeof(G), stream),
                    "cudaMemsetAsync", "embedding_backward"));
  if (k.tokens.empty() || k.cols == 0) return {};
  if (!k.pieces.grid) return add_tokens(k, {}, stream);
  if constexpr (std::is_same_v<G, float>)
    return add_pieces(k, outlier, stream);
  else
    return expected_fp32(KernelKind::embedding_backward);
}

template <class T, class G>
Result<void> position_embedding_backward(const PositionEmbeddingBackward<T, G>& k,
                                         cudaStream_t stream, ExactOutlier* outlier) {
  if (k.cols == 0 || k.positions == 0) return {};
  GridSteps grid;
  if (k.pieces.grid) {
    if constexpr (!std::is_same_v<G, float>)
      return expected_fp32(KernelKind::position_embedding_backward);
    MFSDP_LET(steps, grid_steps(*k.pieces.grid, KernelKind::position_embedding_backward, outlier));
    grid = steps;
  }
  const auto launch = [&](auto n) {
    const std::int64_t slices = ceil_div(ceil_div(k.cols, n()), kThreads);
    sum_positions<T, G, n()><<<grid_of(k.positions, slices), kThreads, 0, stream>>>(k, grid);
  };
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.d_output, k.gradient}, 16))
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  return launched("position_embedding_backward");
}

template Result<void> position_embedding_backward(const PositionEmbeddingBackward<Bf16, Bf16>&,
                                                  cudaStream_t, ExactOutlier*);
template Result<void> position_embedding_backward(const PositionEmbeddingBackward<Fp16, Fp16>&,
                                                  cudaStream_t, ExactOutlier*);
template Result<void> position_embedding_backward(const PositionEmbeddingBackward<Bf16, float>&,
                                                  cudaStream_t, ExactOutlier*);
template Result<void> position_embedding_backward(const PositionEmbeddingBackward<Fp16, float>&,
                                                  cudaStream_t, ExactOutlier*);
template Result<void> position_embedding_backward(const PositionEmbeddingBackward<float, Bf16>&,
                                                  cudaStream_t, ExactOutlier*);
template Result<void> position_embedding_backward(const PositionEmbeddingBackward<float, float>&,
                                                  cudaStream_t, ExactOutlier*);
template Result<void> embedding_forward(const EmbeddingForward<Bf16>&, cudaStream_t);
template Result<void> embedding_forward(const EmbeddingForward<Fp16>&, cudaStream_t);
template Result<void> embedding_forward(const EmbeddingForward<float>&, cudaStream_t);
template Result<void> embedding_backward(const EmbeddingBackward<Bf16, Bf16>&, cudaStream_t,
                                         ExactOutlier*);
template Result<void> embedding_backward(const EmbeddingBackward<Bf16, float>&, cudaStream_t,
                                         ExactOutlier*);
template Result<void> embedding_backward(const EmbeddingBackward<Fp16, Fp16>&, cudaStream_t,
                                         ExactOutlier*);
template Result<void> embedding_backward(const EmbeddingBackward<Fp16, float>&, cudaStream_t,
                                         ExactOutlier*);
template Result<void> embedding_backward(const EmbeddingBackward<float, Bf16>&, cudaStream_t,
                                         ExactOutlier*);
template Result<void> embedding_backward(const EmbeddingBackward<float, float>&, cudaStream_t,
                                         ExactOutlier*);

}  // namespace mfsdp::cuda
