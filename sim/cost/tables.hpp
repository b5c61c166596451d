// The measured tables that prices are interpolated from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "core/plan/op.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

inline constexpr std::int64_t kMebibyte = 1 << 20;  ///< the tables' unit of sizes

struct GemmRow {
  GemmKind kind = GemmKind::forward;
  double m = 0;
  double n = 0;
  double k = 0;
  double flops_per_ns = 0;  ///< sustained, launch gaps included
};

/// GEMMs of balanced experts, run consecutively.
struct GroupedRow {
  double experts = 0;
  GemmRow of_expert{};        ///< m: rows of one expert; rate of all experts together
  std::int64_t gradient = 4;  ///< bytes of an element of main gradients, to which wgrad adds
};

struct AttentionRow {
  bool backward = false;
  double batch = 0;
  double seq = 0;
  double heads = 0;
  double head_dim = 0;
  double ns = 0;
};

/// Times of each collective over `ranks` GPUs of a domain.
struct CollectiveRow {
  double ranks = 0;
  double bytes = 0;  ///< of the full (gathered) buffer
  double all_gather_ns = 0;
  double reduce_scatter_ns = 0;
  double all_reduce_ns = 0;
};

/// The measured collective with that name; nothing for other names.
[[nodiscard]] std::optional<CollectiveKind> measured_collective(std::string_view name);
inline constexpr std::string_view kMeasuredCollectives = "all_gather, all_reduce or reduce_scatter";

/// Time of one collective over `ranks` GPUs on `nodes` hosts, with equal numbers on each.
struct CollectiveSample {
  CollectiveKind kind = CollectiveKind::all_gather;
  std::int64_t ranks = 2;
  std::int64_t nodes = 1;
  Bytes bytes;  ///< of the full (gathered) buffer
  double ns = 0;
  std::string place;  ///< "file:line"
};

/// GEMMs of FP8 operands, by where sums are kept: Fp8Gemm::fast.
struct Fp8GemmRows {
  std::vector<GemmRow> split;
  std::vector<GemmRow> fast;
};

/// Rates of GEMMs with scales of blocks, relative to those with scales of tensors and split sums.
struct BlockRates {
  double by_tiles = 1;    ///< of 1 x 128 values by 128 x 128
  double by_vectors = 1;  ///< of 1 x 128 by 1 x 128
};

struct CostTables {
  std::vector<GemmRow> gemm;
  std::optional<BlockRates> fp8_blocks{};  ///< none: nothing was measured
  std::optional<Fp8GemmRows> gemm_fp8{};   ///< none: nothing was measured
  std::vector<AttentionRow> attention;
  std::vector<CollectiveRow> collective;  ///< inside a domain
  std::vector<CollectiveSample> network;  ///< between domains; empty: nothing was measured
  std::vector<GroupedRow> grouped{};      ///< empty: nothing was measured
  std::vector<AttentionRow> attention_warpgroups{};  ///< likewise
  std::vector<AttentionRow> attention_masked{};      ///< likewise
  std::vector<GroupedRow> grouped_warpgroups{};      ///< likewise
};

/// Columns kind (fwd, dgrad, wgrad), M, N, K, tflops. Every kind must occur.
[[nodiscard]] Result<std::vector<GemmRow>> parse_gemm_table(std::string_view text,
                                                            const std::string& where);

/// The same and a column accumulate (split, fast). Every kind must occur with both.
[[nodiscard]] Result<Fp8GemmRows> parse_fp8_gemm_table(std::string_view text,
                                                       const std::string& where);

/// Columns tensor_split, block_1x128_128x128, block_1x128_1x128: TFLOP/s of one GEMM each. Means of
/// the rows' ratios.
[[nodiscard]] Result<BlockRates> parse_block_table(std::string_view text, const std::string& where);

/// Columns kind (fwd, dgrad, wgrad), experts, M, N, K, main_grad (fp32, bf16), tflops.
[[nodiscard]] Result<std::vector<GroupedRow>> parse_grouped_table(std::string_view text,
                                                                  const std::string& where);

/// Columns direction (fwd, bwd), B, S, heads, head_dim, ms. Both directions must occur.
[[nodiscard]] Result<std::vector<AttentionRow>> parse_attention_table(std::string_view text,
                                                                      const std::string& where);

/// Columns n, mbytes (MiB), ag_ms, rs_ms, ar_ms; sorted by n, then mbytes. Every n must have the
/// same sizes, at least two of them.
[[nodiscard]] Result<std::vector<CollectiveRow>> parse_collective_table(std::string_view text,
                                                                        const std::string& where);

/// Columns collective (all_gather, reduce_scatter, all_reduce), gpus, bytes, optionally nodes, and
/// us or busbw_gb_per_s (NCCL's bus bandwidth: bytes sent by each rank over time). Counts are
/// integers; gpus is at least 2 and a multiple of nodes.
[[nodiscard]] Result<std::vector<CollectiveSample>> parse_collective_samples(
    std::string_view text, const std::string& where);

/// Sorted by ranks, kind and bytes; repeated samples are replaced by one with their mean time.
[[nodiscard]] std::vector<CollectiveSample> mean_of_repeats(
    std::span<const CollectiveSample> samples);

/// Reads the files of the GPU. Errors name file, line and column.
[[nodiscard]] Result<CostTables> load_cost_tables(const TableFiles& files);

}  // namespace mfsdp
