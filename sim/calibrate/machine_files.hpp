// The text of the files that --calibrate writes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sim/cost/tables.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

/// Prefix of the first line of every file that a calibration writes.
inline constexpr std::string_view kCalibratedMark = "# Written by mfsdp-sim --calibrate";

/// A GPU file as parse_gpu reads it, with the table paths of `gpu`. Characters that these TOML
/// strings cannot contain (quotes, non-ASCII) become '?'.
[[nodiscard]] std::string gpu_toml(const Gpu& gpu);

/// A cluster file as load_cluster reads it, with `gpu_file` for its GPU.
[[nodiscard]] std::string cluster_toml(const Cluster& cluster, std::string_view gpu_file,
                                       std::string_view source);

[[nodiscard]] std::string gemm_csv(std::span<const GemmRow> rows);
[[nodiscard]] std::string attention_csv(std::span<const AttentionRow> rows);
[[nodiscard]] std::string collective_csv(std::span<const CollectiveRow> rows);
[[nodiscard]] std::string network_csv(std::span<const CollectiveSample> samples);

}  // namespace mfsdp
