#include <algorithm>
#include <string>

#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/plain_attention.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::AttentionBackward;
using kernels::AttentionForward;
using kernels::AttentionShape;
using kernels::HeadView;

constexpr int kWarps = 4;  // of a block
constexpr std::int64_t kMostHeadDim = 256;
constexpr int kMostParts = kMostHeadDim / kWarp;

/// A lane's part of a row of head_dim elements: every 32nd, zero after the end.
struct Row {
  float part[kMostParts];

  __device__ float& operator[](int i) { return part[i]; }
  __device__ float operator[](int i) const { return part[i]; }
};

__device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
/// The warp's number in the grid.
__device__ std::int64_t warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
}

template <class T>
__device__ T* row_of(const HeadView<T>& view, std::int64_t b, std::int64_t h, std::int64_t i) {
  return view.data + b * view.batch + h * view.head + i * view.position;
}

template <class T>
__device__ Row load_row(const T* from, std::int64_t head_dim) {
  Row row;
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) {
    const int d = i * kWarp + lane();
    row[i] = d < head_dim ? widened(from[d]) : 0;
  }
  return row;
}
template <class T>
__device__ void store_row(const Row& row, T* to, std::int64_t head_dim) {
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) {
    const int d = i * kWarp + lane();
    if (d < head_dim) to[d] = narrowed<T>(row[i]);
  }
}
/// The dot product, in every lane.
__device__ float dot(const Row& a, const Row& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) sum += a[i] * b[i];
  return warp_sum(sum);
}
/// to = to * keep + factor * row
__device__ void add(Row& to, float keep, float factor, const Row& row) {
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) to[i] = to[i] * keep + factor * row[i];
}

__device__ float scale_of(const AttentionShape& s) {
  return 1 / sqrtf(s.query_scalar > 0 ? static_cast<float>(s.query_scalar)
                                      : static_cast<float>(s.head_dim));
}

/// The place after the last query that sees a key at `i`, if there were only one document.
__device__ std::int64_t end_of_view(const AttentionShape& s, std::int64_t i) {
  return s.window > 0 && s.window < s.seq_len - i ? i + s.window : s.seq_len;
}

/// The place in its sequence of a key's row.
__device__ std::int64_t key_place(const AttentionShape& s, std::int64_t row) {
  return s.has_all_keys() ? s.share.gathered_place(row, s.seq_len)
                          : s.share.before(s.shift).place(row, s.seq_len);
}

/// A logit after the softcap, and the softcap's slope there.
struct Score {
  float value;
  float slope;
};
__device__ Score capped(const AttentionShape& s, float score) {
  if (s.score_cap <= 0) return {score, 1};
  const auto cap = static_cast<float>(s.score_cap);
  const float share = tanhf(score / cap);
  return {cap * share, 1 - share * share};
}

/// A warp's row: one of `rows` of each sequence and each of `heads`.
struct WarpRow {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t i = 0;
};
__device__ WarpRow warp_row(std::int64_t rows, std::int64_t heads) {
  const std::int64_t row = warp();
  return {.b = row / (heads * rows), .h = row / rows % heads, .i = row % rows};
}

/// Online softmax: earlier sums are scaled down when a larger logit appears. A query of a
/// part may see no key: then the output is 0 and the log-sum-exp -infinity.
template <class T>
__global__ void forward(AttentionForward<T> k) {
  const AttentionShape& s = k.shape;
  const WarpRow at = warp_row(s.queries(), s.heads);
  if (at.b >= s.batch) return;
  const std::int64_t group = at.h / (s.heads / s.kv_heads);
  const float scale = scale_of(s);
  const Row query = load_row(row_of(k.query, at.b, at.h, at.i), s.head_dim);
  Row output = {};
  float largest = -INFINITY;
  float sum = 0;
  const std::int64_t place = s.place(at.i);
  const std::int64_t end = s.keys_before(place + 1);
  for (std::int64_t j = s.keys_before(s.first_seen(at.b, place)); j < end; ++j) {
    const std::int64_t key_row = s.key_row(j);
    const Row key = load_row(row_of(k.key, at.b, group, key_row), s.head_dim);
    const float score = capped(s, dot(query, key) * scale).value;
    const float now = fmaxf(largest, score);
    const float keep = expf(largest - now);
    const float weight = expf(score - now);
    sum = sum * keep + weight;
    add(output, keep, weight, load_row(row_of(k.value, at.b, group, key_row), s.values()));
    largest = now;
  }
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) output[i] = sum > 0 ? output[i] / sum : 0;
  store_row(output, row_of(k.output, at.b, at.h, at.i), s.values());
  if (lane() == 0)
    k.log_sum_exp[(at.b * s.queries() + at.i) * s.heads + at.h] = largest + logf(sum);
}

/// dQ of a query row, and its D = sum of dO * O for the keys.
template <class T>
__global__ void query_backward(AttentionBackward<T> k) {
  const AttentionShape& s = k.shape;
  const WarpRow at = warp_row(s.queries(), s.heads);
  if (at.b >= s.batch) return;
  const std::int64_t group = at.h / (s.heads / s.kv_heads);
  const std::int64_t statistic = (at.b * s.queries() + at.i) * s.heads + at.h;
  const float scale = scale_of(s);
  const Row query = load_row(row_of(k.query, at.b, at.h, at.i), s.head_dim);
  const Row d_output = load_row(row_of(k.d_output, at.b, at.h, at.i), s.values());
  const float row_sum = dot(d_output, load_row(row_of(k.output, at.b, at.h, at.i), s.values()));
  const float log_sum_exp = k.log_sum_exp[statistic];
  Row d_query = {};
  const std::int64_t place = s.place(at.i);
  const std::int64_t end = s.keys_before(place + 1);
  for (std::int64_t j = s.keys_before(s.first_seen(at.b, place)); j < end; ++j) {
    const std::int64_t key_row = s.key_row(j);
    const Row key = load_row(row_of(k.key, at.b, group, key_row), s.head_dim);
    const Row value = load_row(row_of(k.value, at.b, group, key_row), s.values());
    const Score score = capped(s, dot(query, key) * scale);
    const float probability = expf(score.value - log_sum_exp);
    add(d_query, 1, probability * (dot(d_output, value) - row_sum) * score.slope * scale, key);
  }
  store_row(d_query, row_of(k.d_query, at.b, at.h, at.i), s.head_dim);
  if (lane() == 0) k.row_sums[statistic] = row_sum;
}

/// dK and dV of a key row, from all query rows of its group that see it.
template <class T>
__global__ void key_backward(AttentionBackward<T> k) {
  const AttentionShape& s = k.shape;
  const WarpRow at = warp_row(s.keys(), s.kv_heads);
  if (at.b >= s.batch) return;
  const std::int64_t group_size = s.heads / s.kv_heads;
  const float scale = scale_of(s);
  const Row key = load_row(row_of(k.key, at.b, at.h, at.i), s.head_dim);
  const Row value = load_row(row_of(k.value, at.b, at.h, at.i), s.values());
  Row d_key = {};
  Row d_value = {};
  const std::int64_t place = key_place(s, at.i);
  const std::int64_t first_row = s.share.rows_until(place, s.seq_len);
  const std::int64_t end_row = s.share.rows_until(end_of_view(s, place), s.seq_len);
  for (std::int64_t h = at.h * group_size; h < (at.h + 1) * group_size; ++h)
    for (std::int64_t i = first_row; i < end_row; ++i) {
      if (s.document_begin(at.b, s.place(i)) > place)
        break;  // this query and all later ones belong to other
                // documents
      const std::int64_t statistic = (at.b * s.queries() + i) * s.heads + h;
      const Row query = load_row(row_of(k.query, at.b, h, i), s.head_dim);
      const Row d_output = load_row(row_of(k.d_output, at.b, h, i), s.values());
      const Score score = capped(s, dot(query, key) * scale);
      const float probability = expf(score.value - k.log_sum_exp[statistic]);
      add(d_value, 1, probability, d_output);
      add(d_key, 1,
          probability * (dot(d_output, value) - k.row_sums[statistic]) * score.slope * scale,
          query);
    }
  store_row(d_key, row_of(k.d_key, at.b, at.h, at.i), s.head_dim);
  store_row(d_value, row_of(k.d_value, at.b, at.h, at.i), s.values());
}

Result<void> check_shape(const AttentionShape& s) {
  if (s.head_dim <= kMostHeadDim && s.values() <= kMostHeadDim) return {};
  return fail("attention by plain kernels", "expected a head_dim of at most " +
                                                std::to_string(kMostHeadDim) + ", got " +
                                                std::to_string(std::max(s.head_dim, s.values())));
}

/// A warp a row.
dim3 blocks(std::int64_t rows) { return grid_of(ceil_div(rows, kWarps)); }
dim3 query_blocks(const AttentionShape& s) { return blocks(s.batch * s.heads * s.queries()); }

}  // namespace

template <class T>
Result<void> plain_attention_forward(const AttentionForward<T>& k, cudaStream_t stream) {
  MFSDP_TRY(check_shape(k.shape));
  forward<<<query_blocks(k.shape), kWarps * kWarp, 0, stream>>>(k);
  return launched("attention_forward by a plain kernel");
}

template <class T>
Result<void> plain_attention_backward(const AttentionBackward<T>& k, cudaStream_t stream) {
  const AttentionShape& s = k.shape;
  MFSDP_TRY(check_shape(s));
  if (k.row_sums == nullptr)
    return fail("attention by plain kernels", "expected the scratch row_sums");
  query_backward<<<query_blocks(s), kWarps * kWarp, 0, stream>>>(k);
  MFSDP_TRY(launched("attention_backward of queries by a plain kernel"));
  key_backward<<<blocks(s.batch * s.kv_heads * s.keys()), kWarps * kWarp, 0, stream>>>(k);
  return launched("attention_backward of keys by a plain kernel");
}

#define MFSDP_INSTANTIATE(T)                                                               \
  template Result<void> plain_attention_forward(const AttentionForward<T>&, cudaStream_t); \
  template Result<void> plain_attention_backward(const AttentionBackward<T>&, cudaStream_t)
MFSDP_INSTANTIATE(Bf16);
MFSDP_INSTANTIATE(Fp16);
MFSDP_INSTANTIATE(float);
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
