#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/exact_sums.hpp"
#include "gpu_backend/cuda/kernels/latent.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::LatentHeadsBackward;
using kernels::LatentHeadsForward;
using kernels::LatentNormBackward;
using kernels::LatentNormForward;
using kernels::LatentShape;

constexpr int kThreads = 256;

// ---- heads -------------------------------------------------------------------------------------

/// Offsets of a token's heads in its row of queries, keys and values.
template <class T>
struct TokenHeads {
  T* query;
  T* key;
  T* value;

  __device__ TokenHeads(const LatentShape& s, T* rows, std::int64_t token)
      : query(rows + token * s.heads * (2 * s.head_dim + s.value_dim)),
        key(query + s.heads * s.head_dim),
        value(key + s.heads * s.head_dim) {}
};

/// A pair of neighbours that RoPE rotates, the even one first.
struct Pair {
  float first;
  float second;
};

__device__ Pair turned(const LatentShape& s, const float* angles, std::int64_t pair, Pair from,
                       bool backwards) {
  const float cosine = angles[pair];
  const float sine = backwards ? -angles[s.turned / 2 + pair] : angles[s.turned / 2 + pair];
  return {from.first * cosine - from.second * sine, from.second * cosine + from.first * sine};
}

template <class T>
__device__ Pair pair_at(const T* from, std::int64_t pair) {
  return {widened(from[2 * pair]), widened(from[2 * pair + 1])};
}
template <class T>
__device__ void store_pair(T* to, std::int64_t pair, Pair value) {
  to[2 * pair] = narrowed<T>(value.first);
  to[2 * pair + 1] = narrowed<T>(value.second);
}

/// Calls visit(head, i) for i below `columns` of all heads, distributed over the block's threads.
template <class Visit>
__device__ void for_columns(const LatentShape& s, std::int64_t columns, const Visit& visit) {
  for (std::int64_t at = threadIdx.x; at < s.heads * columns; at += kThreads)
    visit(at / columns, at % columns);
}

/// One block per token.
template <class T>
__global__ void __launch_bounds__(kThreads) heads_forward(const LatentHeadsForward<T> k) {
  const LatentShape& s = k.shape;
  const std::int64_t t = blockIdx.x;
  const std::int64_t kept = s.kept();
  const float* const angles = k.table + s.position(t) * s.turned;
  const TokenHeads<T> to(s, k.output, t);
  const T* const query = k.query + t * s.heads * s.head_dim;
  const T* const key_value = k.key_value + t * s.heads * (kept + s.value_dim);
  const T* const turns = k.latent + (t + 1) * k.latent_width - s.turned;
  for_columns(s, kept, [&](std::int64_t h, std::int64_t i) {
    to.query[h * s.head_dim + i] = query[h * s.head_dim + i];
    to.key[h * s.head_dim + i] = key_value[h * (kept + s.value_dim) + i];
  });
  for_columns(s, s.value_dim, [&](std::int64_t h, std::int64_t i) {
    to.value[h * s.value_dim + i] = key_value[h * (kept + s.value_dim) + kept + i];
  });
  for_columns(s, s.turned / 2, [&](std::int64_t h, std::int64_t pair) {
    const std::int64_t begin = h * s.head_dim + kept;
    store_pair(to.query + begin, pair,
               turned(s, angles, pair, pair_at(query + begin, pair), false));
    store_pair(to.key + begin, pair, turned(s, angles, pair, pair_at(turns, pair), false));
  });
}

/// The shared part of keys gets the sum over heads, in their order.
template <class T>
__global__ void __launch_bounds__(kThreads) heads_backward(const LatentHeadsBackward<T> k) {
  const LatentShape& s = k.shape;
  const std::int64_t t = blockIdx.x;
  const std::int64_t kept = s.kept();
  const float* const angles = k.table + s.position(t) * s.turned;
  const TokenHeads<const T> from(s, k.d_output, t);
  T* const query = k.d_query + t * s.heads * s.head_dim;
  T* const key_value = k.d_key_value + t * s.heads * (kept + s.value_dim);
  for_columns(s, kept, [&](std::int64_t h, std::int64_t i) {
    query[h * s.head_dim + i] = from.query[h * s.head_dim + i];
    key_value[h * (kept + s.value_dim) + i] = from.key[h * s.head_dim + i];
  });
  for_columns(s, s.value_dim, [&](std::int64_t h, std::int64_t i) {
    key_value[h * (kept + s.value_dim) + kept + i] = from.value[h * s.value_dim + i];
  });
  for_columns(s, s.turned / 2, [&](std::int64_t h, std::int64_t pair) {
    const std::int64_t begin = h * s.head_dim + kept;
    store_pair(query + begin, pair,
               turned(s, angles, pair, pair_at(from.query + begin, pair), true));
  });
  for (std::int64_t pair = threadIdx.x; pair < s.turned / 2; pair += kThreads) {
    Pair sum{0, 0};
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const Pair of_head = pair_at(from.key + h * s.head_dim + kept, pair);
      sum.first += of_head.first;
      sum.second += of_head.second;
    }
    store_pair(k.d_turned + t * s.turned, pair, turned(s, angles, pair, sum, true));
  }
}

// ---- norm --------------------------------------------------------------------------------------

/// Rounds the norm's output once. Backward computes the same bits again.
__device__ float normed_number(float x, float rstd, float weight) { return x * rstd * weight; }

/// One block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) norm_forward(const LatentNormForward<T> k) {
  __shared__ float shared[kWarp];
  const std::int64_t row = blockIdx.x;
  const T* const x = k.input + row * k.width;
  float squares = 0;
  for (std::int64_t c = threadIdx.x; c < k.cols; c += kThreads)
    squares += widened(x[c]) * widened(x[c]);
  const float rstd = 1 / sqrtf(block_sum(squares, shared) / static_cast<float>(k.cols) + k.epsilon);
  if (threadIdx.x == 0) k.rstd[row] = rstd;
  for (std::int64_t c = threadIdx.x; c < k.cols; c += kThreads)
    k.normed[row * k.cols + c] =
        narrowed<T>(normed_number(widened(x[c]), rstd, widened(k.weight[c])));
}

/// Block b processes the rows b, b + partial_rows, ..., and sums the weight's gradient in its row
/// of partials.
template <class T>
__global__ void __launch_bounds__(kThreads) norm_backward(const LatentNormBackward<T> k) {
  __shared__ float shared[2][kWarp];  // double-buffered, so that rows need no barrier between them
  float* const partial = k.partials + blockIdx.x * k.cols;
  for (std::int64_t c = threadIdx.x; c < k.cols; c += kThreads) partial[c] = 0;
  const std::int64_t rest = k.width - k.cols;
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < k.rows; row += k.partial_rows, turn ^= 1) {
    const T* const x = k.input + row * k.width;
    const T* const dy = k.d_normed + row * k.cols;
    T* const dx = k.d_input + row * k.width;
    const float rstd = k.rstd[row];
    float dot = 0;
    for (std::int64_t c = threadIdx.x; c < k.cols; c += kThreads)
      dot += widened(k.weight[c]) * widened(dy[c]) * widened(x[c]);
    const float shrink =
        block_sum(dot, shared[turn]) * rstd * rstd * rstd / static_cast<float>(k.cols);
    for (std::int64_t c = threadIdx.x; c < k.cols; c += kThreads) {
      const float gradient = widened(dy[c]);
      const float input = widened(x[c]);
      const float weight = widened(k.weight[c]);
      partial[c] += gradient * input * rstd;
      dx[c] = narrowed<T>(rstd * weight * gradient - input * shrink);
      if (k.normed != nullptr)
        k.normed[row * k.cols + c] = narrowed<T>(normed_number(input, rstd, weight));
    }
    for (std::int64_t c = threadIdx.x; c < rest; c += kThreads)
      dx[k.cols + c] = k.d_rest[row * rest + c];
  }
}

/// The rows of partials after the first belong to one piece; all pieces have equally many.
template <class T>
Result<void> exact_norm_backward(const LatentNormBackward<T>& k, cudaStream_t stream,
                                 ExactOutlier* outlier) {
  const std::int64_t piece = k.pieces.rows;
  const std::int64_t partial_rows = std::min(piece, k.partial_rows) - 1;
  MFSDP_TRY(check_exact_rows("latent_norm_backward", partial_rows));
  for (std::int64_t begin = 0; begin < k.rows; begin += piece) {
    LatentNormBackward<T> part = k;
    part.rows = piece;
    part.partial_rows = partial_rows;
    part.d_normed += begin * k.cols;
    part.input += begin * k.width;
    part.rstd += begin;
    part.d_rest += begin * (k.width - k.cols);
    part.d_input += begin * k.width;
    if (part.normed != nullptr) part.normed += begin * k.cols;
    part.partials += k.cols;
    part.pieces = {};
    MFSDP_TRY(latent_norm_backward(part, stream, outlier));
    MFSDP_TRY(sum_on_grid(
        kernels::ColumnSums<float, float>{.rows = partial_rows,
                                          .cols = k.cols,
                                          .in = part.partials,
                                          .adds = begin > 0,
                                          .out = k.partials,
                                          .pieces = {.rows = partial_rows, .grid = k.pieces.grid}},
        KernelKind::latent_norm_backward, outlier, stream));
  }
  return zero(k.partials + k.cols, (k.partial_rows - 1) * k.cols, "latent_norm_backward", stream);
}

}  // namespace

template <class T>
Result<void> latent_heads_forward(const LatentHeadsForward<T>& k, cudaStream_t stream) {
  if (k.shape.rows == 0) return {};
  heads_forward<<<grid_of(k.shape.rows), kThreads, 0, stream>>>(k);
  return launched("latent_heads_forward");
}

template <class T>
Result<void> latent_heads_backward(const LatentHeadsBackward<T>& k, cudaStream_t stream) {
  if (k.shape.rows == 0) return {};
  heads_backward<<<grid_of(k.shape.rows), kThreads, 0, stream>>>(k);
  return launched("latent_heads_backward");
}

template <class T>
Result<void> latent_norm_forward(const LatentNormForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0) return {};
  norm_forward<<<grid_of(k.rows), kThreads, 0, stream>>>(k);
  return launched("latent_norm_forward");
}

template <class T>
Result<void> latent_norm_backward(const LatentNormBackward<T>& k, cudaStream_t stream,
                                  ExactOutlier* outlier) {
  if (k.pieces.grid) return exact_norm_backward(k, stream, outlier);
  norm_backward<<<grid_of(k.partial_rows), kThreads, 0, stream>>>(k);
  return launched("latent_norm_backward");
}

#define MFSDP_INSTANTIATE(T)                                                                \
  template Result<void> latent_heads_forward(const LatentHeadsForward<T>&, cudaStream_t);   \
  template Result<void> latent_heads_backward(const LatentHeadsBackward<T>&, cudaStream_t); \
  template Result<void> latent_norm_forward(const LatentNormForward<T>&, cudaStream_t);     \
  template Result<void> latent_norm_backward(const LatentNormBackward<T>&, cudaStream_t,    \
                                             ExactOutlier*)
MFSDP_INSTANTIATE(Bf16);
MFSDP_INSTANTIATE(Fp16);
MFSDP_INSTANTIATE(float);
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
