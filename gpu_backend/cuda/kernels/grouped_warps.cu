// Grouped GEMMs by mma.sync: tiles of 128 x 128, in three stages of 64 inner elements. Rows of
// shared memory have 128 bytes, whose 16-byte pieces are swizzled by the row, so that neither
// copies nor ldmatrix have bank conflicts.
#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/kernels/grouped_tiles.cuh"
#include "gpu_backend/cuda/kernels/tile_rows.cuh"

namespace mfsdp::cuda {
namespace {

constexpr int kTile = 128;
constexpr int kInner = 64;
constexpr int kStages = 3;
constexpr int kThreads = 256;  // 2 x 4 warps, with 64 x 32 each
constexpr int kWarpRows = 64;
constexpr int kWarpCols = 32;
constexpr int kPiece = 8;                             // elements of 16 bytes
constexpr int kOperandBytes = kTile * kInner * 2;     // of a stage
constexpr int kShared = 2 * kStages * kOperandBytes;  // bytes

/// Byte offset of an element. An operand that is contiguous along c has its 128 columns in two
/// halves of 64; its rows are the inner dimension.
template <bool Across>
__device__ std::uint32_t place(int row, int col) {
  const int half = Across ? col / 64 * (kInner * 128) : 0;
  return static_cast<std::uint32_t>(half + row * 128 + ((col % 64 / kPiece) ^ (row % 8)) * 16);
}

__device__ void copy_16(std::uint32_t to, const void* from, bool there) {
  const int bytes = there ? 16 : 0;  // the rest becomes zero
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int pending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// `first`: along c; `inner`: along the sum.
template <bool Across, class T>
__device__ void copy_operand(const MatrixPart<T>& part, int first, int inner, std::uint32_t to) {
  constexpr int kRowPieces = (Across ? kTile : kInner) / kPiece;
  constexpr int kPieces = kTile * kInner / kPiece;
#pragma unroll
  for (int i = 0; i < kPieces / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = at / kRowPieces;
    const int col = at % kRowPieces * kPiece;
    const int from_row = row + (Across ? inner : first);
    const int from_col = col + (Across ? first : inner);
    const bool there = from_row < part.rows && from_col < part.cols;
    const T* const from = part.data + (there ? from_row * part.pitch + from_col : 0);
    copy_16(to + place<Across>(row, col), from, there);
  }
}

template <bool Turned>
__device__ void load_matrices(std::uint32_t from, std::uint32_t (&to)[4]) {
  if constexpr (Turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/// 16 x 16 of a: matrices are ordered along c's rows first, then along the sum.
template <bool Across>
__device__ void load_a(std::uint32_t tile, int row, int inner, int lane, std::uint32_t (&to)[4]) {
  const int outer_at = row + (lane / 8 % 2) * 8;
  const int inner_at = inner + (lane / 16) * 8;
  if constexpr (Across)
    load_matrices<true>(tile + place<true>(inner_at + lane % 8, outer_at), to);
  else
    load_matrices<false>(tile + place<false>(outer_at + lane % 8, inner_at), to);
}

/// 16 x 16 of b: matrices are ordered along the sum first, then along c's columns: two words for
/// each 8 of them.
template <bool Across>
__device__ void load_b(std::uint32_t tile, int col, int inner, int lane, std::uint32_t (&to)[4]) {
  const int outer_at = col + (lane / 16) * 8;
  const int inner_at = inner + (lane / 8 % 2) * 8;
  if constexpr (Across)
    load_matrices<true>(tile + place<true>(inner_at + lane % 8, outer_at), to);
  else
    load_matrices<false>(tile + place<false>(outer_at + lane % 8, inner_at), to);
}

template <class T>
__device__ void multiply(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1) {
  if constexpr (std::is_same_v<T, Bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

constexpr int kHigh = kWarpRows / 16;  // fragments of a warp
constexpr int kWide = kWarpCols / 8;

template <GroupedKind kind, class T>
__device__ void multiply_stage(std::uint32_t a, std::uint32_t b, int row, int col, int lane,
                               float (&sums)[kHigh][kWide][4]) {
  using Shape = GroupedShape<kind>;
#pragma unroll
  for (int inner = 0; inner < kInner; inner += 16) {
    std::uint32_t from_a[kHigh][4];
    std::uint32_t from_b[kWide / 2][4];
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
      load_a<Shape::kAcrossA>(a, row + i * 16, inner, lane, from_a[i]);
#pragma unroll
    for (int j = 0; j < kWide / 2; ++j)
      load_b<Shape::kAcrossB>(b, col + j * 16, inner, lane, from_b[j]);
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j)
        multiply<T>(sums[i][j], from_a[i], from_b[j / 2][j % 2 * 2], from_b[j / 2][j % 2 * 2 + 1]);
  }
}

template <GroupedKind kind, class T, class G>
__global__ void __launch_bounds__(kThreads, 2) product(const GroupedCall<T, G> call) {
  using Shape = GroupedShape<kind>;
  extern __shared__ __align__(1024) std::byte stages[];
  __shared__ GroupedTiles<kind, kTile, kTile> tiles;
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(stages));
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp / 4 * kWarpRows;
  const int warp_col = warp % 4 * kWarpCols;
  if (warp == 0) tiles.fill(call.sizes, call.ends);
  __syncthreads();
  const int count = tiles.count(call.sizes);
  const int cols = Shape::cols(call.sizes);
  for (int at = static_cast<int>(blockIdx.x); at < count; at += static_cast<int>(gridDim.x)) {
    const GroupedTile tile = tiles.at(call.sizes, at);
    const MatrixPart<T> part_a = a_of<kind>(call, tile);
    const MatrixPart<T> part_b = b_of<kind>(call, tile);
    const int rows = Shape::rows(call.sizes, tile.expert_rows);
    const int steps = (Shape::inner(call.sizes, tile.expert_rows) + kInner - 1) / kInner;
    const auto stage_of = [shared](int step) {
      return shared + static_cast<std::uint32_t>(step % kStages * 2 * kOperandBytes);
    };
    const auto copy_step = [&](int step) {
      if (step < steps) {
        copy_operand<Shape::kAcrossA>(part_a, tile.row, step * kInner, stage_of(step));
        copy_operand<Shape::kAcrossB>(part_b, tile.col, step * kInner,
                                      stage_of(step) + kOperandBytes);
      }
      commit_copies();  // also an empty group: groups are counted
    };
    float sums[kHigh][kWide][4] = {};
    for (int step = 0; step < kStages - 1; ++step) copy_step(step);
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<kStages - 2>();
      __syncthreads();  // all have received this stage, and none still reads the one that is filled
                        // next
      copy_step(step + kStages - 1);
      multiply_stage<kind, T>(stage_of(step), stage_of(step) + kOperandBytes, warp_row, warp_col,
                              lane, sums);
    }
    __syncthreads();
    G* const c = c_of<kind>(call, tile);
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile.row + warp_row + i * 16 + half * 8 + lane / 4;
        const int col = tile.col + warp_col;
        float values[1][2 * kWide];
#pragma unroll
        for (int j = 0; j < kWide; ++j) {
          values[0][2 * j] = sums[i][j][2 * half];
          values[0][2 * j + 1] = sums[i][j][2 * half + 1];
        }
        store_parts(c + static_cast<std::int64_t>(row) * cols + col, row < rows ? cols - col : 0,
                    values, call.adds, lane);
      }
  }
}

}  // namespace

template <GroupedKind kind, class T, class G>
Result<void> grouped_warps(const GroupedCall<T, G>& call, cudaStream_t stream) {
  const auto kernel = product<kind, T, G>;
  MFSDP_TRY(check_experts(call.sizes.experts));
  MFSDP_LET(grid, staying_grid(kernel, kThreads, kShared));
  kernel<<<grid, kThreads, kShared, stream>>>(call);
  return launched("grouped GEMM");
}

#define MFSDP_GROUPED_WARPS(kind, T, G) \
  template Result<void> grouped_warps<GroupedKind::kind>(const GroupedCall<T, G>&, cudaStream_t)
MFSDP_GROUPED_WARPS(forward, Bf16, Bf16);
MFSDP_GROUPED_WARPS(forward, Fp16, Fp16);
MFSDP_GROUPED_WARPS(input_gradient, Bf16, Bf16);
MFSDP_GROUPED_WARPS(input_gradient, Fp16, Fp16);
MFSDP_GROUPED_WARPS(weight_gradient, Bf16, Bf16);
MFSDP_GROUPED_WARPS(weight_gradient, Bf16, float);
MFSDP_GROUPED_WARPS(weight_gradient, Fp16, Fp16);
MFSDP_GROUPED_WARPS(weight_gradient, Fp16, float);
#undef MFSDP_GROUPED_WARPS

}  // namespace mfsdp::cuda
