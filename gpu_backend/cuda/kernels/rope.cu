#include "gpu_backend/cuda/kernels/exact_sums.hpp"
#include "gpu_backend/cuda/kernels/rope.cuh"
#include "gpu_backend/cuda/kernels/rope.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::QkNormRopeBackward;
using kernels::QkNormRopeForward;
using kernels::Rope;
using kernels::RopeShape;

/// One block per token; `packs`: packs of half of the rotated part of a head.
template <class T, int N>
__global__ void rotate(const Rope<T> k, int packs) {
  const RopeShape& s = k.shape;
  const std::int64_t half = s.turned / 2;
  T* const token = k.heads.data + blockIdx.x * k.heads.row;
  const float* const angles = k.table + s.position(blockIdx.x) * s.turned;
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

/// Distribution of a head over threads: `lanes` of a warp, a power of two, each with at most kMost
/// packs of N elements of each half.
struct HeadLanes {
  int lanes;
  int threads;  ///< of a block, whole warps

  [[nodiscard]] __host__ __device__ int groups() const { return threads / lanes; }
};
constexpr int kHeadThreads = 512;

/// The sum over the lanes of a head, in each of them. All lanes of the warp take part.
__device__ float head_sum(float value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  return value;
}

/// This lane's packs of pairs: calls use(v, place).
template <int N, int kMost, class Use>
__device__ void for_lane_packs(const HeadPairs& pairs, int lanes, const Use& use) {
#pragma unroll
  for (int v = 0; v < kMost; ++v) {
    const int pair = (v * lanes + static_cast<int>(threadIdx.x) % lanes) * N;
    if (kMost == 1 || pair < pairs.all) use(v, PairPlace(pairs, pair));
  }
}

/// One block per token; all its warps process the heads together, also after the last one.
template <class T, int N, int kMost>
__global__ void __launch_bounds__(kHeadThreads)
    qk_forward(const QkNormRopeForward<T, float> k, const HeadLanes lanes) {
  const auto heads = static_cast<int>(k.shape.heads);
  const HeadPairs pairs(k.shape);
  const float* const angles = k.table + k.shape.position(blockIdx.x) * k.shape.turned;
  const int group = static_cast<int>(threadIdx.x) / lanes.lanes;
  for (int first_head = 0; first_head < heads; first_head += lanes.groups()) {
    const int head = first_head + group;
    const bool is_head = head < heads;
    const T* const in = k.in.data + blockIdx.x * k.in.row + head * k.in.head;
    T* const out = k.out.data + blockIdx.x * k.out.row + head * k.out.head;
    const T* const weight = head < k.query_heads ? k.query_weight : k.key_weight;
    float first[kMost][N];
    float second[kMost][N];
    float squares = 0;
    if (is_head)
      for_lane_packs<N, kMost>(pairs, lanes.lanes, [&](int v, const PairPlace& at) {
        load_widened<N>(in + at.first, first[v]);
        load_widened<N>(in + at.second, second[v]);
#pragma unroll
        for (int i = 0; i < N; ++i)
          squares += first[v][i] * first[v][i] + second[v][i] * second[v][i];
      });
    const float mean = head_sum(squares, lanes.lanes) / static_cast<float>(2 * pairs.all);
    if (!is_head) continue;
    const float rstd = 1 / sqrtf(mean + k.epsilon);
    if (threadIdx.x % lanes.lanes == 0) k.rstd[blockIdx.x * k.shape.heads + head] = rstd;
    for_lane_packs<N, kMost>(pairs, lanes.lanes, [&](int v, const PairPlace& at) {
      float w[N];
      load_widened<N>(weight + at.first, w);
#pragma unroll
      for (int i = 0; i < N; ++i) first[v][i] *= rstd * (k.weight_offset + w[i]);
      load_widened<N>(weight + at.second, w);
#pragma unroll
      for (int i = 0; i < N; ++i) second[v][i] *= rstd * (k.weight_offset + w[i]);
      if (at.turns) turn(angles + at.angle, pairs.turning, false, first[v], second[v]);
      store_narrowed<N>(out + at.first, first[v]);
      store_narrowed<N>(out + at.second, second[v]);
    });
  }
}

/// A lane's part of the weight gradient of one kind of heads: both halves.
template <int N, int kMost>
using LanePartials = float[2][kMost][N];

/// Adds the partials of all groups of lanes in their order and writes them to `out`. `shared`: a
/// head's elements for each group.
template <int N, int kMost>
__device__ void write_partials(const LanePartials<N, kMost>& partials, const HeadPairs& pairs,
                               const HeadLanes& lanes, float* shared, float* out) {
  const int head_dim = 2 * pairs.all;
  float* const row = shared + static_cast<int>(threadIdx.x) / lanes.lanes * head_dim;
  __syncthreads();  // the previous contents have been added up
  for_lane_packs<N, kMost>(pairs, lanes.lanes, [&](int v, const PairPlace& at) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      row[at.first + i] = partials[0][v][i];
      row[at.second + i] = partials[1][v][i];
    }
  });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < head_dim; i += lanes.threads) {
    float sum = 0;
    for (int group = 0; group < lanes.groups(); ++group) sum += shared[group * head_dim + i];
    out[i] = sum;
  }
}

/// Block b processes the tokens b, b + partial_rows, ... Its groups of lanes have the heads of one
/// token, or, `in_turn`, take the heads of all of them in turn.
template <class T, int N, int kMost, bool in_turn>
__global__ void __launch_bounds__(kHeadThreads)
    qk_backward(const QkNormRopeBackward<T, float> k, const HeadLanes lanes) {
  extern __shared__ float shared[];  // [groups, head_dim]
  const RopeShape& s = k.shape;
  const auto heads = static_cast<int>(s.heads);
  const HeadPairs pairs(s);
  const int group = static_cast<int>(threadIdx.x) / lanes.lanes;
  LanePartials<N, kMost> queries = {};
  LanePartials<N, kMost> keys = {};
  const auto process = [&](std::int64_t token, int head, bool is_head) {
    const float* const angles = k.table + s.position(token) * s.turned;
    const bool is_query = head < k.query_heads;
    T* const gradient = k.gradient.data + token * k.gradient.row + head * k.gradient.head;
    const T* const in = k.in.data + token * k.in.row + head * k.in.head;
    const T* const weight = is_query ? k.query_weight : k.key_weight;
    const float rstd = is_head ? k.rstd[token * s.heads + head] : 0.0F;
    float dy[2][kMost][N];
    float x[2][kMost][N];
    float dot = 0;
    if (is_head)
      for_lane_packs<N, kMost>(pairs, lanes.lanes, [&](int v, const PairPlace& at) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          load_widened<N>(gradient + (h == 0 ? at.first : at.second), dy[h][v]);
          load_widened<N>(in + (h == 0 ? at.first : at.second), x[h][v]);
        }
        if (at.turns) turn(angles + at.angle, pairs.turning, true, dy[0][v], dy[1][v]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float w[N];
          load_widened<N>(weight + (h == 0 ? at.first : at.second), w);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            const float part = dy[h][v][i] * x[h][v][i];
            (is_query ? queries : keys)[h][v][i] += part * rstd;
            dot += (k.weight_offset + w[i]) * part;
            dy[h][v][i] *= rstd * (k.weight_offset + w[i]);
          }
        }
      });
    const float shrink =
        head_sum(dot, lanes.lanes) * rstd * rstd * rstd / static_cast<float>(2 * pairs.all);
    if (!is_head) return;
    for_lane_packs<N, kMost>(pairs, lanes.lanes, [&](int v, const PairPlace& at) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < N; ++i) dy[h][v][i] -= x[h][v][i] * shrink;
        store_narrowed<N>(gradient + (h == 0 ? at.first : at.second), dy[h][v]);
      }
    });
  };
  if constexpr (in_turn) {
    const auto tokens =
        static_cast<int>((s.tokens - blockIdx.x + k.partial_rows - 1) / k.partial_rows);
    for (int first = 0; first < tokens * heads; first += lanes.groups()) {
      const int item = first + group;
      const bool is_head = item < tokens * heads;
      process(is_head ? blockIdx.x + item / heads * k.partial_rows : 0, item % heads, is_head);
    }
  } else {
    for (std::int64_t token = blockIdx.x; token < s.tokens; token += k.partial_rows)
      for (int first = 0; first < heads; first += lanes.groups())
        process(token, first + group, first + group < heads);
  }
  write_partials<N, kMost>(queries, pairs, lanes, shared, k.partials + blockIdx.x * s.head_dim);
  write_partials<N, kMost>(keys, pairs, lanes, shared,
                           k.partials + (k.partial_rows + blockIdx.x) * s.head_dim);
}

constexpr int kMostPacks = 4;  ///< packs of single elements, if heads are not complete packs

/// Calls `run` with the elements of a pack, the packs of a lane and the lanes of a head; an error
/// if heads are too long.
template <class T, class Run>
Result<void> with_head_lanes(std::string_view kernel, const RopeShape& s,
                             std::initializer_list<const void*> pointers,
                             std::initializer_list<std::int64_t> strides, const Run& run) {
  constexpr int N = kPack<T>;
  const std::int64_t half = s.head_dim / 2;
  const auto threads = [&](std::int64_t lanes) {
    return static_cast<int>(
        std::min<std::int64_t>(kHeadThreads, ceil_div(s.heads * lanes, kWarp) * kWarp));
  };
  const bool packs =
      half % N == 0 && s.turned / 2 % N == 0 && is_aligned(pointers, 16) &&
      std::ranges::all_of(strides, [](std::int64_t elements) { return elements % N == 0; });
  const std::int64_t lanes = half / N;
  if (packs && lanes <= kWarp && (lanes & (lanes - 1)) == 0)
    run(std::integral_constant<int, N>{}, std::integral_constant<int, 1>{},
        HeadLanes{.lanes = static_cast<int>(lanes), .threads = threads(lanes)});
  else if (half <= kMostPacks * kWarp)
    run(std::integral_constant<int, 1>{}, std::integral_constant<int, kMostPacks>{},
        HeadLanes{.lanes = kWarp, .threads = threads(kWarp)});
  else
    return fail("kernel " + std::string(kernel),
                "expected heads of at most 256 elements, got " + std::to_string(s.head_dim),
                Fault::environment);
  return launched(kernel);
}

}  // namespace

template <class T>
Result<void> rope(const Rope<T>& k, cudaStream_t stream) {
  const RopeShape& s = k.shape;
  if (s.tokens == 0 || s.heads == 0 || s.turned == 0) return {};
  const std::int64_t half = s.turned / 2;
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
  if (s.tokens == 0 || s.heads == 0 || s.head_dim == 0) return {};
  return with_head_lanes<T>(
      "qk_norm_rope_forward", s, {k.in.data, k.out.data, k.query_weight, k.key_weight, k.table},
      {k.in.row, k.in.head, k.out.row, k.out.head}, [&](auto n, auto most, HeadLanes lanes) {
        qk_forward<T, n(), most()><<<grid_of(s.tokens), lanes.threads, 0, stream>>>(k, lanes);
      });
}

namespace {

constexpr int kBackwardThreads = 256;  ///< at least: tokens of few heads are processed together

/// `ordered`: a group of lanes has the same heads of every token, so that sums of a block have one
/// order.
template <class T>
Result<void> launch_backward(const QkNormRopeBackward<T, float>& k, bool ordered,
                             cudaStream_t stream) {
  const RopeShape& s = k.shape;
  if (s.heads == 0 || s.head_dim == 0) return {};
  return with_head_lanes<T>(
      "qk_norm_rope_backward", s,
      {k.in.data, k.gradient.data, k.query_weight, k.key_weight, k.table},
      {k.in.row, k.in.head, k.gradient.row, k.gradient.head},
      [&](auto n, auto most, HeadLanes lanes) {
        const bool in_turn = !ordered && lanes.threads < kBackwardThreads;
        if (in_turn) lanes.threads = kBackwardThreads;
        const auto shared = static_cast<std::size_t>(lanes.groups() * s.head_dim) * sizeof(float);
        const auto kernel =
            in_turn ? qk_backward<T, n(), most(), true> : qk_backward<T, n(), most(), false>;
        kernel<<<grid_of(k.partial_rows), lanes.threads, shared, stream>>>(k, lanes);
      });
}

/// The rows of partials between the first and the last belong to one piece; all pieces have equally
/// many.
template <class T>
Result<void> exact_qk_norm_rope_backward(const QkNormRopeBackward<T, float>& k, cudaStream_t stream,
                                         ExactOutlier* outlier) {
  const RopeShape& s = k.shape;
  const std::int64_t piece = k.pieces.rows;
  const std::int64_t partial_rows = std::min(piece, k.partial_rows) - 1;
  MFSDP_TRY(check_exact_rows("qk_norm_rope_backward", partial_rows));
  float* const after_first = k.partials + s.head_dim;
  float* const last = k.partials + (2 * k.partial_rows - 1) * s.head_dim;
  for (std::int64_t begin = 0; begin < s.tokens; begin += piece) {
    QkNormRopeBackward<T, float> part = k;
    part.shape = s.piece(begin, piece);
    part.partial_rows = partial_rows;
    part.gradient.data += begin * k.gradient.row;
    part.in.data += begin * k.in.row;
    part.rstd += begin * s.heads;
    part.partials = after_first;
    part.pieces = {};
    MFSDP_TRY(launch_backward(part, true, stream));
    kernels::ColumnSums<float, float> sums{.rows = partial_rows,
                                           .cols = s.head_dim,
                                           .in = after_first,
                                           .adds = begin > 0,
                                           .out = k.partials,
                                           .pieces = {.rows = partial_rows, .grid = k.pieces.grid}};
    MFSDP_TRY(sum_on_grid(sums, KernelKind::qk_norm_rope_backward, outlier, stream));
    sums.in += partial_rows * s.head_dim;
    sums.out = last;
    MFSDP_TRY(sum_on_grid(sums, KernelKind::qk_norm_rope_backward, outlier, stream));
  }
  return zero(after_first, last - after_first, "qk_norm_rope_backward", stream);
}

}  // namespace

template <class T>
Result<void> qk_norm_rope_backward(const QkNormRopeBackward<T, float>& k, cudaStream_t stream,
                                   ExactOutlier* outlier) {
  if (k.pieces.grid) return exact_qk_norm_rope_backward(k, stream, outlier);
  return launch_backward(k, false, stream);
}

template Result<void> rope(const Rope<Bf16>&, cudaStream_t);
template Result<void> rope(const Rope<Fp16>&, cudaStream_t);
template Result<void> rope(const Rope<float>&, cudaStream_t);
template Result<void> qk_norm_rope_forward(const QkNormRopeForward<Bf16, float>&, cudaStream_t);
template Result<void> qk_norm_rope_forward(const QkNormRopeForward<Fp16, float>&, cudaStream_t);
template Result<void> qk_norm_rope_forward(const QkNormRopeForward<float, float>&, cudaStream_t);
template Result<void> qk_norm_rope_backward(const QkNormRopeBackward<Bf16, float>&, cudaStream_t,
                                            ExactOutlier*);
template Result<void> qk_norm_rope_backward(const QkNormRopeBackward<Fp16, float>&, cudaStream_t,
                                            ExactOutlier*);
template Result<void> qk_norm_rope_backward(const QkNormRopeBackward<float, float>&, cudaStream_t,
                                            ExactOutlier*);

}  // namespace mfsdp::cuda
