#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/rope.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::QkNormRopeBackward;
using kernels::QkNormRopeForward;
using kernels::Rope;
using kernels::RopeShape;

/// Turns N elements of a head's first half with those of its second. `angles`: the position's
/// cosines, its sines `half` behind.
template <int N>
__device__ void turn(const float* angles, std::int64_t half, bool backwards, float (&first)[N],
                     float (&second)[N]) {
  float cosine[N];
  float sine[N];
  load_widened<N>(angles, cosine);
  load_widened<N>(angles + half, sine);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float s = backwards ? -sine[i] : sine[i];
    const float turned = first[i] * cosine[i] - second[i] * s;
    second[i] = second[i] * cosine[i] + first[i] * s;
    first[i] = turned;
  }
}

/// A block for each token; `packs`: those of half a head.
template <class T, int N>
__global__ void rotate(const Rope<T> k, int packs) {
  const RopeShape& s = k.shape;
  const std::int64_t half = s.head_dim / 2;
  T* const token = k.heads.data + blockIdx.x * k.heads.row;
  const float* const angles = k.table + blockIdx.x % s.seq_len * s.head_dim;
  for (int item = static_cast<int>(threadIdx.x); item < s.heads * packs;
       item += static_cast<int>(blockDim.x)) {
    const int at = item % packs * N;
    T* const head = token + item / packs * k.heads.head + at;
    float first[N];
    float second[N];
    load_widened<N>(head, first);
    load_widened<N>(head + half, second);
    turn(angles + at, half, k.backwards, first, second);
    store_narrowed<N>(head, first);
    store_narrowed<N>(head + half, second);
  }
}

// ---- with a norm of each head ------------------------------------------------------------------

constexpr int kWarps = 8;  ///< of a block
constexpr int kMost = 4;   ///< packs of half a head in one lane, at most

/// Half a head's packs of this lane: calls use(v, element of the first half).
template <int N, class Use>
__device__ void for_lane_packs(std::int64_t half, const Use& use) {
#pragma unroll
  for (int v = 0; v < kMost; ++v) {
    const int at = (v * kWarp + static_cast<int>(threadIdx.x) % kWarp) * N;
    if (at < half) use(v, at);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kWarps* kWarp) qk_forward(const QkNormRopeForward<T, float> k) {
  const RopeShape& s = k.shape;
  const std::int64_t half = s.head_dim / 2;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (index >= s.tokens * s.heads) return;
  const std::int64_t token = index / s.heads;
  const std::int64_t head = index % s.heads;
  const T* const in = k.in.data + token * k.in.row + head * k.in.head;
  T* const out = k.out.data + token * k.out.row + head * k.out.head;
  const T* const weight = head < k.query_heads ? k.query_weight : k.key_weight;
  const float* const angles = k.table + token % s.seq_len * s.head_dim;
  float first[kMost][N];
  float second[kMost][N];
  float squares = 0;
  for_lane_packs<N>(half, [&](int v, int at) {
    load_widened<N>(in + at, first[v]);
    load_widened<N>(in + half + at, second[v]);
#pragma unroll
    for (int i = 0; i < N; ++i) squares += first[v][i] * first[v][i] + second[v][i] * second[v][i];
  });
  const float mean = warp_sum(squares) / static_cast<float>(s.head_dim);
  const float rstd = 1 / sqrtf(mean + k.epsilon);
  if (threadIdx.x % kWarp == 0) k.rstd[index] = rstd;
  for_lane_packs<N>(half, [&](int v, int at) {
    float w[N];
    load_widened<N>(weight + at, w);
#pragma unroll
    for (int i = 0; i < N; ++i) first[v][i] *= rstd * w[i];
    load_widened<N>(weight + half + at, w);
#pragma unroll
    for (int i = 0; i < N; ++i) second[v][i] *= rstd * w[i];
    turn(angles + at, half, false, first[v], second[v]);
    store_narrowed<N>(out + at, first[v]);
    store_narrowed<N>(out + half + at, second[v]);
  });
}

/// A lane's part of the gradients of one kind of heads' weight.
template <int N>
struct LanePartials {
  float first[kMost][N] = {};
  float second[kMost][N] = {};
};

/// The partials of all warps, added in their order, go to `out`. `shared`: a row for each warp.
template <int N>
__device__ void write_partials(const LanePartials<N>& p, std::int64_t half, float* shared,
                               float* out) {
  const std::int64_t head_dim = 2 * half;
  float* const row = shared + threadIdx.x / kWarp * head_dim;
  __syncthreads();
  for_lane_packs<N>(half, [&](int v, int at) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      row[at + i] = p.first[v][i];
      row[half + at + i] = p.second[v][i];
    }
  });
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < head_dim; i += blockDim.x) {
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp * head_dim + i];
    out[i] = sum;
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kWarps* kWarp) qk_backward(const QkNormRopeBackward<T, float> k) {
  extern __shared__ float shared[];  // [kWarps, head_dim]
  const RopeShape& s = k.shape;
  const std::int64_t half = s.head_dim / 2;
  LanePartials<N> queries;
  LanePartials<N> keys;
  const auto one_head = [&](std::int64_t token, std::int64_t head, const T* weight,
                            LanePartials<N>& partials) {
    T* const gradient = k.gradient.data + token * k.gradient.row + head * k.gradient.head;
    const T* const in = k.in.data + token * k.in.row + head * k.in.head;
    const float* const angles = k.table + token % s.seq_len * s.head_dim;
    const float rstd = k.rstd[token * s.heads + head];
    float dy[2][kMost][N];
    float x[2][kMost][N];
    float w[2][kMost][N];
    float dot = 0;
    for_lane_packs<N>(half, [&](int v, int at) {
      load_widened<N>(gradient + at, dy[0][v]);
      load_widened<N>(gradient + half + at, dy[1][v]);
      turn(angles + at, half, true, dy[0][v], dy[1][v]);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        load_widened<N>(in + h * half + at, x[h][v]);
        load_widened<N>(weight + h * half + at, w[h][v]);
#pragma unroll
        for (int i = 0; i < N; ++i) dot += w[h][v][i] * dy[h][v][i] * x[h][v][i];
      }
    });
    const float shrink = warp_sum(dot) * rstd * rstd * rstd / static_cast<float>(s.head_dim);
    for_lane_packs<N>(half, [&](int v, int at) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        auto& sum = h == 0 ? partials.first[v] : partials.second[v];
#pragma unroll
        for (int i = 0; i < N; ++i) {
          sum[i] += dy[h][v][i] * x[h][v][i] * rstd;
          dy[h][v][i] = rstd * w[h][v][i] * dy[h][v][i] - x[h][v][i] * shrink;
        }
        store_narrowed<N>(gradient + h * half + at, dy[h][v]);
      }
    });
  };
  for (std::int64_t token = blockIdx.x; token < s.tokens; token += k.partial_rows) {
    for (std::int64_t head = threadIdx.x / kWarp; head < k.query_heads; head += kWarps)
      one_head(token, head, k.query_weight, queries);
    for (std::int64_t head = k.query_heads + threadIdx.x / kWarp; head < s.heads; head += kWarps)
      one_head(token, head, k.key_weight, keys);
  }
  write_partials(queries, half, shared, k.partials + blockIdx.x * s.head_dim);
  write_partials(keys, half, shared, k.partials + (k.partial_rows + blockIdx.x) * s.head_dim);
}

/// Elements of a lane's pack of half a head: 2 where that is whole packs, else 1; 0 where heads are
/// too long.
template <class T>
int head_pack(const RopeShape& s, std::initializer_list<const void*> pointers,
              std::initializer_list<std::int64_t> strides) {
  const std::int64_t half = s.head_dim / 2;
  const bool pairs = half % 2 == 0 && is_aligned(pointers, 2 * sizeof(T)) &&
                     std::ranges::all_of(strides, [](std::int64_t n) { return n % 2 == 0; });
  if (pairs && half <= 2 * kMost * kWarp) return 2;
  return half <= kMost * kWarp ? 1 : 0;
}

Result<void> heads_too_long(std::string_view kernel, const RopeShape& s) {
  return fail("kernel " + std::string(kernel),
              "expected heads of at most 256 elements, got " + std::to_string(s.head_dim),
              Fault::environment);
}

}  // namespace

template <class T>
Result<void> rope(const Rope<T>& k, cudaStream_t stream) {
  const RopeShape& s = k.shape;
  if (s.tokens == 0 || s.heads == 0 || s.head_dim == 0) return {};
  const std::int64_t half = s.head_dim / 2;
  const auto launch = [&](auto n) {
    const auto packs = static_cast<int>(half / n());
    const std::int64_t items = s.heads * packs;
    const std::int64_t threads = std::min<std::int64_t>(512, ceil_div(items, kWarp) * kWarp);
    rotate<T, n()><<<grid_of(s.tokens), static_cast<unsigned>(threads), 0, stream>>>(k, packs);
  };
  constexpr int N = kPack<T>;
  const bool packs = half % N == 0 && k.heads.row % N == 0 && k.heads.head % N == 0 &&
                     is_aligned({k.heads.data, k.table}, 16);
  if (packs)
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  return launched("rope");
}

template <class T>
Result<void> qk_norm_rope_forward(const QkNormRopeForward<T, float>& k, cudaStream_t stream) {
  const RopeShape& s = k.shape;
  const std::int64_t count = s.tokens * s.heads;
  if (count == 0) return {};
  const int pack = head_pack<T>(s, {k.in.data, k.out.data, k.query_weight, k.key_weight},
                                {k.in.row, k.in.head, k.out.row, k.out.head});
  if (pack == 0) return heads_too_long("qk_norm_rope_forward", s);
  const dim3 grid = grid_of(ceil_div(count, kWarps));
  if (pack == 2)
    qk_forward<T, 2><<<grid, kWarps * kWarp, 0, stream>>>(k);
  else
    qk_forward<T, 1><<<grid, kWarps * kWarp, 0, stream>>>(k);
  return launched("qk_norm_rope_forward");
}

template <class T>
Result<void> qk_norm_rope_backward(const QkNormRopeBackward<T, float>& k, cudaStream_t stream) {
  if (k.pieces.grid) return no_exact_form("qk_norm_rope_backward");
  const RopeShape& s = k.shape;
  const int pack = head_pack<T>(s, {k.in.data, k.gradient.data, k.query_weight, k.key_weight},
                                {k.in.row, k.in.head, k.gradient.row, k.gradient.head});
  if (pack == 0) return heads_too_long("qk_norm_rope_backward", s);
  const dim3 grid = grid_of(k.partial_rows);
  const auto shared = static_cast<std::size_t>(kWarps * s.head_dim) * sizeof(float);
  if (pack == 2)
    qk_backward<T, 2><<<grid, kWarps * kWarp, shared, stream>>>(k);
  else
    qk_backward<T, 1><<<grid, kWarps * kWarp, shared, stream>>>(k);
  return launched("qk_norm_rope_backward");
}

template Result<void> rope(const Rope<Bf16>&, cudaStream_t);
template Result<void> rope(const Rope<float>&, cudaStream_t);
template Result<void> qk_norm_rope_forward(const QkNormRopeForward<Bf16, float>&, cudaStream_t);
template Result<void> qk_norm_rope_forward(const QkNormRopeForward<float, float>&, cudaStream_t);
template Result<void> qk_norm_rope_backward(const QkNormRopeBackward<Bf16, float>&, cudaStream_t);
template Result<void> qk_norm_rope_backward(const QkNormRopeBackward<float, float>&, cudaStream_t);

}  // namespace mfsdp::cuda
