// Grouped GEMMs without tensor cores: for fp32, for sizes that do not suit 16-byte loads, and for
// weight gradients under --exact-sums.
#include "gpu_backend/cuda/kernels/exact_sums.cuh"
#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/kernels/grouped_tiles.cuh"

namespace mfsdp::cuda {
namespace {

constexpr int kTile = 64;   // rows and columns of c
constexpr int kInner = 16;  // inner elements between two barriers
constexpr int kThreads = 256;
constexpr int kOwn = 4;  // rows and columns of a thread
constexpr int kPitch = kTile + 4;

struct Staged {
  float values[kInner][kPitch];
};

/// Elements [first, first + kTile) along c, [inner, inner + kInner) along the sum. Zero outside the
/// operand.
template <bool Across, class T>
__device__ void stage(const MatrixPart<T>& part, int first, int inner, Staged& to) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kInner; i += kThreads) {
    const int outer_at = Across ? i % kTile : i / kInner;
    const int inner_at = Across ? i / kTile : i % kInner;
    const int row = Across ? inner + inner_at : first + outer_at;
    const int col = Across ? first + outer_at : inner + inner_at;
    const bool there = row < part.rows && col < part.cols;
    to.values[inner_at][outer_at] = there ? widened(part.data[row * part.pitch + col]) : 0.0F;
  }
}

/// Adds up the terms of a sum.
struct Chain {
  __device__ float operator()(float sum, float a, float b) const { return fmaf(a, b, sum); }
};
struct Rounded {
  GridSteps grid;
  __device__ float operator()(float sum, float a, float b) const {
    return grid.added(sum, __fmul_rn(a, b));
  }
};

/// Each thread has rows and columns with a distance of 16. Each of its sums is one chain over the
/// whole inner dimension. `FromC`: sums begin with c if the call adds.
template <GroupedKind kind, bool FromC, class T, class G, class Add>
__global__ void __launch_bounds__(kThreads) product(const GroupedCall<T, G> call, const Add add) {
  using Shape = GroupedShape<kind>;
  __shared__ GroupedTiles<kind, kTile, kTile> tiles;
  __shared__ Staged a;
  __shared__ Staged b;
  constexpr int kApart = kTile / kOwn;
  const int my_row = static_cast<int>(threadIdx.x) / kApart;
  const int my_col = static_cast<int>(threadIdx.x) % kApart;
  if (threadIdx.x < kWarp) tiles.fill(call.sizes, call.ends);
  __syncthreads();
  const int count = tiles.count(call.sizes);
  const int cols = Shape::cols(call.sizes);
  for (int at = static_cast<int>(blockIdx.x); at < count; at += static_cast<int>(gridDim.x)) {
    const GroupedTile tile = tiles.at(call.sizes, at);
    const MatrixPart<T> part_a = a_of<kind>(call, tile);
    const MatrixPart<T> part_b = b_of<kind>(call, tile);
    const int rows = Shape::rows(call.sizes, tile.expert_rows);
    const int inner = Shape::inner(call.sizes, tile.expert_rows);
    G* const c = c_of<kind>(call, tile);
    float sum[kOwn][kOwn] = {};
    const auto for_own = [&](const auto& visit) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const int row = tile.row + my_row + i * kApart;
          const int col = tile.col + my_col + j * kApart;
          if (row < rows && col < cols)
            visit(sum[i][j], c[static_cast<std::int64_t>(row) * cols + col]);
        }
    };
    if (FromC && call.adds) for_own([](float& own, const G& out) { own = widened(out); });
    for (int first = 0; first < inner; first += kInner) {
      stage<Shape::kAcrossA>(part_a, tile.row, first, a);
      stage<Shape::kAcrossB>(part_b, tile.col, first, b);
      __syncthreads();
      const int steps = min(kInner, inner - first);
      for (int k = 0; k < steps; ++k) {
        float from_a[kOwn];
        float from_b[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          from_a[i] = a.values[k][my_row + i * kApart];
          from_b[i] = b.values[k][my_col + i * kApart];
        }
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
#pragma unroll
          for (int j = 0; j < kOwn; ++j) sum[i][j] = add(sum[i][j], from_a[i], from_b[j]);
      }
      __syncthreads();
    }
    for_own([&](float own, G& out) {
      out = narrowed<G>(!FromC && call.adds ? widened(out) + own : own);
    });
  }
}

template <GroupedKind kind, bool FromC, class T, class G, class Add>
Result<void> launch(const GroupedCall<T, G>& call, const Add& add, cudaStream_t stream) {
  const auto kernel = product<kind, FromC, T, G, Add>;
  MFSDP_TRY(check_experts(call.sizes.experts));
  MFSDP_LET(grid, staying_grid(kernel, kThreads, 0));
  kernel<<<grid, kThreads, 0, stream>>>(call, add);
  return launched("grouped GEMM");
}

}  // namespace

template <GroupedKind kind, class T, class G>
Result<void> grouped_plain(const GroupedCall<T, G>& call, cudaStream_t stream) {
  return launch<kind, false>(call, Chain{}, stream);
}

template <class T>
Result<void> grouped_exact(const kernels::GroupedWeightGradient<T, float>& p, cudaStream_t stream,
                           ExactOutlier* outlier) {
  MFSDP_LET(grid, grid_steps(*p.pieces.grid, KernelKind::grouped_weight_gradient, outlier));
  return launch<GroupedKind::weight_gradient, true>(grouped_call(p), Rounded{grid}, stream);
}

#define MFSDP_GROUPED_PLAIN(kind, T, G) \
  template Result<void> grouped_plain<GroupedKind::kind>(const GroupedCall<T, G>&, cudaStream_t)
MFSDP_GROUPED_PLAIN(forward, Bf16, Bf16);
MFSDP_GROUPED_PLAIN(forward, Fp16, Fp16);
MFSDP_GROUPED_PLAIN(forward, float, float);
MFSDP_GROUPED_PLAIN(input_gradient, Bf16, Bf16);
MFSDP_GROUPED_PLAIN(input_gradient, Fp16, Fp16);
MFSDP_GROUPED_PLAIN(input_gradient, float, float);
MFSDP_GROUPED_PLAIN(weight_gradient, Bf16, Bf16);
MFSDP_GROUPED_PLAIN(weight_gradient, Bf16, float);
MFSDP_GROUPED_PLAIN(weight_gradient, Fp16, Fp16);
MFSDP_GROUPED_PLAIN(weight_gradient, Fp16, float);
MFSDP_GROUPED_PLAIN(weight_gradient, float, Bf16);
MFSDP_GROUPED_PLAIN(weight_gradient, float, float);
#undef MFSDP_GROUPED_PLAIN

template Result<void> grouped_exact(const kernels::GroupedWeightGradient<Bf16, float>&,
                                    cudaStream_t, ExactOutlier*);
template Result<void> grouped_exact(const kernels::GroupedWeightGradient<Fp16, float>&,
                                    cudaStream_t, ExactOutlier*);
template Result<void> grouped_exact(const kernels::GroupedWeightGradient<float, float>&,
                                    cudaStream_t, ExactOutlier*);

}  // namespace mfsdp::cuda
