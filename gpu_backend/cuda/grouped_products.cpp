#include "gpu_backend/cuda/grouped_products.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "gpu_backend/cuda/kernels/exact_sums.hpp"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/tensor_map.hpp"

namespace mfsdp::cuda {
namespace {

// ---- choice of the version ---------------------------------------------------------------------

/// Whether 16-byte loads suit all operands.
template <class T, class G>
bool fits_pieces(const GroupedCall<T, G>& call) {
  const auto begins_well = [](const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
  };
  return call.sizes.n % 8 == 0 && call.sizes.k % 8 == 0 && begins_well(call.a) &&
         begins_well(call.b) && begins_well(call.c);
}

/// Whether tensor cores support these types: 16-bit operands, and a result of their type or fp32.
template <class T, class G>
constexpr bool kTensorCores = sizeof(T) == 2 && (std::is_same_v<T, G> || sizeof(G) == 4);

/// Matrices that are narrower than a row of shared memory leave most of a tile empty.
template <class T, class G>
bool fills_tiles(const GroupedCall<T, G>& call) {
  return call.sizes.n >= kWarpgroupInner && call.sizes.k >= kWarpgroupInner;
}

template <class T, class G>
Result<GroupedVersion> best_version(const GroupedCall<T, G>& call) {
  if (!kTensorCores<T, G> || !fits_pieces(call)) return GroupedVersion::plain;
  if (!fills_tiles(call)) return GroupedVersion::warps;
  MFSDP_LET(has, has_warpgroups());
  return has ? GroupedVersion::warpgroups : GroupedVersion::warps;
}

template <class T, class G>
Result<GroupedVersion> version_of(const GroupedCall<T, G>& call,
                                  std::optional<GroupedVersion> only) {
  if (!only) return best_version(call);
  if (*only == GroupedVersion::plain) return *only;
  if (!kTensorCores<T, G> || !fits_pieces(call))
    return fail("grouped GEMM",
                "expected 16-bit operands of rows that are whole pieces of 16 bytes");
  if (*only == GroupedVersion::warps) return *only;
  MFSDP_LET(has, has_warpgroups());
  if (!has) return fail("grouped GEMM", "expected a GPU of compute capability 9.0");
  return *only;
}

// ---- TMA descriptors ---------------------------------------------------------------------------

/// Consecutive matrices of rows x cols, and the rows of a box, which has 64 columns.
struct MapShape {
  std::int64_t matrices = 1;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  int box_rows = 0;
};

template <class T>
Result<CUtensorMap> map_of(const T* data, const MapShape& shape) {
  constexpr CUtensorMapDataType kType =
      std::is_same_v<T, Bf16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return tensor_map(data,
                    {.type = kType,
                     .dims = {shape.cols, shape.rows, shape.matrices},
                     .strides = {shape.cols, shape.cols * shape.rows},
                     .box = {kWarpgroupInner, shape.box_rows, 1}},
                    "the matrix of a grouped GEMM");
}

template <GroupedKind kind, class T, class G>
Result<GroupedMaps> maps_of(const GroupedCall<T, G>& call) {
  const kernels::GroupedSizes& s = call.sizes;
  const std::int64_t rows = std::max<std::int64_t>(s.m, 1);  // without rows nothing is loaded
  MapShape a{.rows = rows, .cols = kind == GroupedKind::forward ? s.k : s.n};
  MapShape b{.matrices = s.experts, .rows = s.n, .cols = s.k, .box_rows = kWarpgroupInner};
  a.box_rows = kind == GroupedKind::weight_gradient ? kWarpgroupInner : kWarpgroupTileRows;
  if (kind == GroupedKind::forward) b.box_rows = kWarpgroupTileCols;
  if (kind == GroupedKind::weight_gradient)
    b = {.rows = rows, .cols = s.k, .box_rows = kWarpgroupInner};
  MFSDP_LET(map_a, map_of(call.a, a));
  MFSDP_LET(map_b, map_of(call.b, b));
  return GroupedMaps{.a = map_a, .b = map_b};
}

// ---- launches ----------------------------------------------------------------------------------

template <GroupedKind kind, class T, class G>
Result<Launch> launch_of(const GroupedCall<T, G>& call, cudaStream_t stream,
                         std::optional<GroupedVersion> only) {
  MFSDP_TRY(check_experts(call.sizes.experts));
  if (call.sizes.experts == 0 || call.sizes.n == 0 || call.sizes.k == 0) return Launch{};
  if (kind != GroupedKind::weight_gradient && call.sizes.m == 0) return Launch{};
  MFSDP_LET(version, version_of(call, only));
  if constexpr (kTensorCores<T, G>) {
    if (version == GroupedVersion::warpgroups) {
      MFSDP_LET(maps, maps_of<kind>(call));
      return [call, maps, stream] { return grouped_warpgroups<kind>(call, maps, stream); };
    }
    if (version == GroupedVersion::warps)
      return [call, stream] { return grouped_warps<kind>(call, stream); };
  }
  return [call, stream] { return grouped_plain<kind>(call, stream); };
}

}  // namespace

template <class T>
Result<Launch> grouped_launch(const kernels::GroupedProduct<T>& p, cudaStream_t stream,
                              std::optional<GroupedVersion> only) {
  const GroupedCall<T, T> call = grouped_call(p);
  return p.gradient ? launch_of<GroupedKind::input_gradient>(call, stream, only)
                    : launch_of<GroupedKind::forward>(call, stream, only);
}

template <class T, class G>
Result<Launch> grouped_launch(const kernels::GroupedWeightGradient<T, G>& p, cudaStream_t stream,
                              ExactOutlier* outlier, std::optional<GroupedVersion> only) {
  if (p.pieces.grid) {
    MFSDP_TRY(check_experts(p.sizes.experts));
    if constexpr (std::is_same_v<G, float>)
      return [p, outlier, stream] { return grouped_exact(p, stream, outlier); };
    else
      return tl::unexpected(expected_fp32(KernelKind::grouped_weight_gradient).error());
  }
  return launch_of<GroupedKind::weight_gradient>(grouped_call(p), stream, only);
}

template Result<Launch> grouped_launch(const kernels::GroupedProduct<Bf16>&, cudaStream_t,
                                       std::optional<GroupedVersion>);
template Result<Launch> grouped_launch(const kernels::GroupedProduct<Fp16>&, cudaStream_t,
                                       std::optional<GroupedVersion>);
template Result<Launch> grouped_launch(const kernels::GroupedProduct<float>&, cudaStream_t,
                                       std::optional<GroupedVersion>);
#define MFSDP_GROUPED_LAUNCH(T, G)                                                    \
  template Result<Launch> grouped_launch(const kernels::GroupedWeightGradient<T, G>&, \
                                         cudaStream_t, ExactOutlier*,                 \
                                         std::optional<GroupedVersion>)
MFSDP_GROUPED_LAUNCH(Bf16, Bf16);
MFSDP_GROUPED_LAUNCH(Bf16, float);
MFSDP_GROUPED_LAUNCH(Fp16, Fp16);
MFSDP_GROUPED_LAUNCH(Fp16, float);
MFSDP_GROUPED_LAUNCH(float, Bf16);
MFSDP_GROUPED_LAUNCH(float, float);
#undef MFSDP_GROUPED_LAUNCH

}  // namespace mfsdp::cuda
