// Grouped GEMMs by wgmma: tiles of 128 x 256. Two warpgroups multiply a half each, while a third
// one loads the next operands by TMA, in four stages of 64 inner elements.
#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/kernels/grouped_tiles.cuh"
#include "gpu_backend/cuda/kernels/sm90a/wgmma.cuh"
#include "gpu_backend/cuda/kernels/tile_rows.cuh"

namespace mfsdp::cuda {
namespace {

constexpr int kTileRows = kWarpgroupTileRows;
constexpr int kTileCols = kWarpgroupTileCols;
constexpr int kInner = kWarpgroupInner;
constexpr int kStages = 4;
constexpr int kWarpgroup = 128;
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kMultiplyingWarps = 8;
constexpr int kHalfRows = kTileRows / 2;
constexpr int kBlockBytes = kInner * kInner * 2;  // 64 rows of 128 bytes
constexpr int kBytesA = kTileRows * kInner * 2;
constexpr int kStageBytes = kBytesA + kTileCols * kInner * 2;
constexpr int kShared = kStages * kStageBytes + kAlignment;

/// A warpgroup's current stage and the parity of its round.
struct Turn {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1U;
  }
};

/// Addresses in shared memory. A stage is full when its bytes have arrived, and empty when every
/// multiplying warp has finished with it.
struct Stages {
  std::uint32_t first = 0;
  std::uint32_t barriers = 0;

  [[nodiscard]] __device__ std::uint32_t a(int stage) const {
    return first + static_cast<std::uint32_t>(stage * kStageBytes);
  }
  [[nodiscard]] __device__ std::uint32_t b(int stage) const { return a(stage) + kBytesA; }
  [[nodiscard]] __device__ std::uint32_t full(int stage) const {
    return barriers + static_cast<std::uint32_t>(stage) * 16;
  }
  [[nodiscard]] __device__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
};

template <GroupedKind kind>
__device__ void load_step(const GroupedMaps& maps, const GroupedTile& tile, int step,
                          const Stages& stages, int stage) {
  using Shape = GroupedShape<kind>;
  const std::uint32_t full = stages.full(stage);
  const int inner = step * kInner;
  arrive_expecting(full, kStageBytes);
  if constexpr (Shape::kAcrossA) {
#pragma unroll
    for (int i = 0; i < kTileRows / kInner; ++i)
      load_box(maps.a, tile.row + i * kInner, tile.begin + inner, 0,
               stages.a(stage) + static_cast<std::uint32_t>(i * kBlockBytes), full);
  } else {
    load_box(maps.a, inner, tile.begin + tile.row, 0, stages.a(stage), full);
  }
  if constexpr (Shape::kAcrossB) {
    const int row = Shape::kWeights ? tile.begin + inner : inner;
    const int matrix = Shape::kWeights ? 0 : tile.expert;
#pragma unroll
    for (int i = 0; i < kTileCols / kInner; ++i)
      load_box(maps.b, tile.col + i * kInner, row, matrix,
               stages.b(stage) + static_cast<std::uint32_t>(i * kBlockBytes), full);
  } else {
    load_box(maps.b, inner, tile.col, tile.expert, stages.b(stage), full);
  }
}

/// Sets rows that TMA loaded after the expert's last row to zero: in this warpgroup's half of a,
/// and in b, where both warpgroups write the same.
__device__ void clear_rows(std::uint32_t a, std::uint32_t b, int valid, int warpgroup) {
  const auto clear = [valid](std::uint32_t block) {
    for (int at = static_cast<int>(threadIdx.x) % kWarpgroup; at < (kInner - valid) * 8;
         at += kWarpgroup)
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(
                       block + static_cast<std::uint32_t>(valid * 128 + at * 16)),
                   "r"(0)
                   : "memory");
  };
  clear(a);
#pragma unroll
  for (int i = 0; i < kTileCols / kInner; ++i)
    clear(b + static_cast<std::uint32_t>(i * kBlockBytes));
  publish_stores();
  asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(kWarpgroup) : "memory");
}

template <GroupedKind kind, class T>
__device__ void multiply_stage(float (&sums)[128], std::uint32_t a, std::uint32_t b) {
  using Shape = GroupedShape<kind>;
  constexpr std::uint32_t kStepA = Shape::kAcrossA ? 16 * 128 : 32;  // bytes between steps of 16
  constexpr std::uint32_t kStepB = Shape::kAcrossB ? 16 * 128 : 32;
#pragma unroll
  for (std::uint32_t i = 0; i < kInner / 16; ++i)
    multiply<T, Shape::kAcrossA, Shape::kAcrossB>(sums, matrix_of(a + i * kStepA),
                                                  matrix_of(b + i * kStepB));
}

/// Prefetches c into the L2 cache if the sums will be added to it.
template <class G>
__device__ void prefetch_half(const G* c, const GroupedTile& tile, int rows, int cols,
                              int first_row) {
  constexpr int kLine = 128 / static_cast<int>(sizeof(G));  // elements
  constexpr int kLines = kTileCols / kLine;                 // of a row of the tile
  for (int at = static_cast<int>(threadIdx.x) % kWarpgroup; at < kHalfRows * kLines;
       at += kWarpgroup) {
    const int row = tile.row + first_row + at / kLines;
    const int col = tile.col + at % kLines * kLine;
    if (row < rows && col < cols)
      asm volatile(
          "prefetch.global.L2 [%0];" ::"l"(c + static_cast<std::int64_t>(row) * cols + col));
  }
}

template <class G>
__device__ void store_half(G* c, const GroupedTile& tile, int rows, int cols, bool adds,
                           int first_row, float (&sums)[128]) {
  constexpr int kParts = 4;  // of 32 columns, at a time
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = tile.row + first_row + warp * 16 + half * 8 + lane / 4;
    G* const to = c + static_cast<std::int64_t>(row) * cols + tile.col;
#pragma unroll
    for (int first = 0; first < kTileCols / 32; first += kParts) {
      float values[kParts][8];
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          values[part][2 * j] = sums[((first + part) * 4 + j) * 4 + 2 * half];
          values[part][2 * j + 1] = sums[((first + part) * 4 + j) * 4 + 2 * half + 1];
        }
      store_parts(to + first * 32, row < rows ? cols - tile.col - first * 32 : 0, values, adds,
                  lane);
    }
  }
}

template <GroupedKind kind, class T, class G>
__global__ void __launch_bounds__(kThreads, 1)
    product(const GroupedCall<T, G> call, const __grid_constant__ GroupedMaps maps) {
  using Shape = GroupedShape<kind>;
  extern __shared__ std::byte memory[];
  __shared__ std::uint64_t barriers[2 * kStages];
  __shared__ GroupedTiles<kind, kTileRows, kTileCols> tiles;
  const Stages stages{.first = aligned_address_of(memory), .barriers = address_of(barriers)};
  if (threadIdx.x < kWarp) tiles.fill(call.sizes, call.ends);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(stages.full(i), 1);
      init_barrier(stages.empty(i), kMultiplyingWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  const int count = tiles.count(call.sizes);
  const auto steps_of = [&call](const GroupedTile& tile) {
    return (Shape::inner(call.sizes, tile.expert_rows) + kInner - 1) / kInner;
  };
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  Turn turn;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x != 0) return;
    for (int at = static_cast<int>(blockIdx.x); at < count; at += static_cast<int>(gridDim.x)) {
      const GroupedTile tile = tiles.at(call.sizes, at);
      const int steps = steps_of(tile);
      for (int step = 0; step < steps; ++step, turn.next()) {
        wait(stages.empty(turn.stage), turn.parity ^ 1U);
        load_step<kind>(maps, tile, step, stages, turn.stage);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int warpgroup = group - 1;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int cols = Shape::cols(call.sizes);
  for (int at = static_cast<int>(blockIdx.x); at < count; at += static_cast<int>(gridDim.x)) {
    const GroupedTile tile = tiles.at(call.sizes, at);
    const int steps = steps_of(tile);
    const int rows = Shape::rows(call.sizes, tile.expert_rows);
    const int first_row = warpgroup * kHalfRows;
    if (tile.row + first_row >= rows) {  // the other half uses the tensor cores alone
      for (int step = 0; step < steps; ++step, turn.next()) {
        wait(stages.full(turn.stage), turn.parity);
        if (lane == 0) arrive(stages.empty(turn.stage));
      }
      continue;
    }
    G* const c = c_of<kind>(call, tile);
    if (call.adds) prefetch_half(c, tile, rows, cols, first_row);
    float sums[128];
#pragma unroll
    for (float& sum : sums) sum = 0;
    int before = 0;
    for (int step = 0; step < steps; ++step, turn.next()) {
      wait(stages.full(turn.stage), turn.parity);
      const std::uint32_t a = stages.a(turn.stage) + static_cast<std::uint32_t>(first_row * 128);
      const std::uint32_t b = stages.b(turn.stage);
      if (Shape::kWeights && step == steps - 1 && tile.expert_rows % kInner != 0)
        clear_rows(a, b, tile.expert_rows % kInner, warpgroup);
      pin(sums);
      begin_products();
      multiply_stage<kind, T>(sums, a, b);
      commit_products();
      wait_for_products<1>();  // those of the previous step
      if (step > 0 && lane == 0) arrive(stages.empty(before));
      before = turn.stage;
    }
    wait_for_products<0>();
    pin(sums);
    if (steps > 0 && lane == 0) arrive(stages.empty(before));
    store_half(c, tile, rows, cols, call.adds, first_row, sums);
  }
}

}  // namespace

template <GroupedKind kind, class T, class G>
Result<void> grouped_warpgroups(const GroupedCall<T, G>& call, const GroupedMaps& maps,
                                cudaStream_t stream) {
  const auto kernel = product<kind, T, G>;
  MFSDP_TRY(check_experts(call.sizes.experts));
  MFSDP_LET(grid, staying_grid(kernel, kThreads, kShared));
  kernel<<<grid, kThreads, kShared, stream>>>(call, maps);
  return launched("grouped GEMM");
}

Result<bool> has_warpgroups() {
  int device = 0;
  int major = 0;
  int minor = 0;
  MFSDP_TRY(check(cudaGetDevice(&device), "cudaGetDevice"));
  MFSDP_TRY(check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                  "cudaDeviceGetAttribute"));
  MFSDP_TRY(check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                  "cudaDeviceGetAttribute"));
  return major == 9 && minor == 0;
}

#define MFSDP_GROUPED_WARPGROUPS(kind, T, G)                                            \
  template Result<void> grouped_warpgroups<GroupedKind::kind>(const GroupedCall<T, G>&, \
                                                              const GroupedMaps&, cudaStream_t)
MFSDP_GROUPED_WARPGROUPS(forward, Bf16, Bf16);
MFSDP_GROUPED_WARPGROUPS(forward, Fp16, Fp16);
MFSDP_GROUPED_WARPGROUPS(input_gradient, Bf16, Bf16);
MFSDP_GROUPED_WARPGROUPS(input_gradient, Fp16, Fp16);
MFSDP_GROUPED_WARPGROUPS(weight_gradient, Bf16, Bf16);
MFSDP_GROUPED_WARPGROUPS(weight_gradient, Bf16, float);
MFSDP_GROUPED_WARPGROUPS(weight_gradient, Fp16, Fp16);
MFSDP_GROUPED_WARPGROUPS(weight_gradient, Fp16, float);
#undef MFSDP_GROUPED_WARPGROUPS

}  // namespace mfsdp::cuda
