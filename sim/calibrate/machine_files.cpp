#include "sim/calibrate/machine_files.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "sim/cost/nanos.hpp"

namespace mfsdp {
namespace {

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) result += c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
  return result + '"';
}

std::string measured_list(const MeasuredParts& parts) {
  std::vector<std::string_view> names;
  if (parts.gemm) names.emplace_back("gemm");
  if (parts.attention) names.emplace_back("attention");
  if (parts.collective) names.emplace_back("collective");
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Lines "key = value", in the order of calls.
class TomlText {
 public:
  explicit TomlText(std::string_view note) {
    text_ = fmt::format("{}: {}\n", kCalibratedMark, note);
  }
  void table(std::string_view name) { text_ += fmt::format("\n[{}]\n", name); }
  void add(std::string_view key, std::string_view value) {
    text_ += fmt::format("{} = {}\n", key, in_quotes(value));
  }
  void add(std::string_view key, double value) { text_ += fmt::format("{} = {}\n", key, value); }
  void add(std::string_view key, std::int64_t value) {
    text_ += fmt::format("{} = {}\n", key, value);
  }
  std::string finish() { return std::move(text_); }

 private:
  std::string text_;
};

void add_compute(TomlText& toml, const Gpu& gpu) {
  toml.table("compute");
  toml.add("bf16_tflops", gpu.bf16);
  toml.add("fp32_tflops", gpu.fp32);
  if (gpu.nvfp4 > 0) toml.add("nvfp4_tflops", gpu.nvfp4);
  if (!gpu.formats.empty()) toml.add("matmul_formats", format_list(gpu.formats));
  toml.add("sms", gpu.sms);
  toml.add("gemm_scale", gpu.gemm_scale);
  toml.add("attention_scale", gpu.attention_scale);
  toml.add("launch_ns", gpu.launch.value);
  toml.add("l2_bytes", gpu.l2.value);
}

void add_memory(TomlText& toml, const Gpu& gpu) {
  toml.table("memory");
  toml.add("capacity_bytes", gpu.capacity.value);
  toml.add("gb_per_s", gpu.memory_bandwidth);
  toml.add("copy_fraction", gpu.copy_fraction);
  toml.add("runtime_bytes", gpu.runtime.value);
  toml.add("first_communicator_bytes", gpu.first_communicator.value);
  toml.add("communicator_bytes", gpu.communicator.value);
  toml.add("runtime_source", gpu.runtime_source);
  toml.add("host_gb_per_s", gpu.host_bandwidth);
}

void add_links(TomlText& toml, const Gpu& gpu) {
  toml.table("link");
  toml.add("kind", to_string(gpu.link));
  toml.add("gb_per_s", gpu.link_bandwidth);
  toml.add("efficiency", gpu.link_efficiency);
  if (gpu.per_peer_bandwidth) toml.add("per_peer_gb_per_s", *gpu.per_peer_bandwidth);
  toml.add("domain", gpu.domain);
  toml.add("collective_sms", gpu.collective_sms);
  toml.table("node");
  toml.add("gpus", gpu.gpus_per_node);
  toml.add("nics", gpu.nics_per_node);
  toml.add("nic_gb_per_s", gpu.nic_bandwidth);
  if (gpu.nic_line_rate) toml.add("nic_line_gb_per_s", *gpu.nic_line_rate);
  toml.add("nic_latency_ns", gpu.nic_latency.value);
  toml.add("host_launch_ns", gpu.host_launch.value);
}

void add_published(TomlText& toml, const PublishedTables& published) {
  toml.table("published");
  if (!published.gemm.empty()) toml.add("gemm", published.gemm.string());
  if (!published.attention.empty()) toml.add("attention", published.attention.string());
  if (!published.grouped.empty()) toml.add("grouped", published.grouped.string());
  toml.add("sms", published.sms);
  if (!published.of.empty()) toml.add("of", published.of);
  toml.add("scale", published.scale);
  if (published.all_to_all) toml.add("all_to_all_gb_per_s", *published.all_to_all);
  toml.add("source", published.source);
}

std::string csv_head(std::string_view columns) {
  return fmt::format("{}\n{}\n", kCalibratedMark, columns);
}

}  // namespace

std::string gpu_toml(const Gpu& gpu) {
  TomlText toml("[source] has the origin of each value.");
  toml.add("title", gpu.title);
  toml.add("calibration", gpu.calibration);
  if (const std::string measured = measured_list(gpu.measured);
      gpu.calibration != "measured" && !measured.empty())
    toml.add("measured", measured);
  add_compute(toml, gpu);
  add_memory(toml, gpu);
  add_links(toml, gpu);
  // Where the owner sets the limit, that of the measured machine is not known.
  if (gpu.power && !gpu.owner_sets_power) {
    toml.table("power");
    toml.add("limit_w", gpu.power->own);
    toml.add("tables_w", gpu.power->tables);
  }
  toml.table("tables");
  const auto add_if_any = [&](const char* key, const std::filesystem::path& file) {
    if (!file.empty()) toml.add(key, file.string());
  };
  toml.add("gemm", gpu.tables.gemm.string());
  add_if_any("gemm_fp8", gpu.tables.gemm_fp8);
  add_if_any("gemm_fp8_blocks", gpu.tables.gemm_fp8_blocks);
  toml.add("attention", gpu.tables.attention.string());
  add_if_any("attention_warpgroups", gpu.tables.attention_warpgroups);
  add_if_any("attention_masked", gpu.tables.attention_masked);
  add_if_any("grouped_warpgroups", gpu.tables.grouped_warpgroups);
  toml.add("collective", gpu.tables.collective.string());
  add_if_any("network", gpu.tables.network);
  toml.add("sms", gpu.table_sms);
  if (gpu.default_tables) toml.add("default", to_string(*gpu.default_tables));
  if (gpu.published) add_published(toml, *gpu.published);
  toml.table("source");
  for (const auto& [key, source] : gpu.sources) toml.add(in_quotes(key), std::string_view(source));
  return toml.finish();
}

std::string cluster_toml(const Cluster& cluster, std::string_view gpu_file,
                         std::string_view source) {
  TomlText toml(source);
  toml.add("gpu", gpu_file);
  toml.add("gpus_per_node", cluster.gpus_per_node);
  toml.add("domain", cluster.domain);
  toml.add("nics_per_node", cluster.nics_per_node);
  toml.add("nic_gb_per_s", cluster.nic_bandwidth);
  toml.add("nic_latency_ns", cluster.nic_latency.value);
  return toml.finish();
}

std::string gemm_csv(std::span<const GemmRow> rows) {
  constexpr std::array<std::string_view, 3> kKinds{"fwd", "dgrad", "wgrad"};
  std::string csv = csv_head("kind,M,N,K,tflops");
  for (const GemmRow& row : rows)
    csv += fmt::format("{},{},{},{},{}\n", kKinds[static_cast<std::size_t>(row.kind)], row.m, row.n,
                       row.k, row.flops_per_ns / 1e3);
  return csv;
}

std::string attention_csv(std::span<const AttentionRow> rows) {
  std::string csv = csv_head("direction,B,S,heads,head_dim,ms");
  for (const AttentionRow& row : rows)
    csv += fmt::format("{},{},{},{},{},{}\n", row.backward ? "bwd" : "fwd", row.batch, row.seq,
                       row.heads, row.head_dim, row.ns / kNanosPerMilli);
  return csv;
}

std::string collective_csv(std::span<const CollectiveRow> rows) {
  std::string csv = csv_head("n,mbytes,ag_ms,rs_ms,ar_ms");
  for (const CollectiveRow& row : rows)
    csv += fmt::format("{},{},{:.7g},{:.7g},{:.7g}\n", row.ranks, row.bytes / kMebibyte,
                       row.all_gather_ns / kNanosPerMilli, row.reduce_scatter_ns / kNanosPerMilli,
                       row.all_reduce_ns / kNanosPerMilli);
  return csv;
}

std::string network_csv(std::span<const CollectiveSample> samples) {
  std::string csv = csv_head("collective,gpus,nodes,bytes,us");
  for (const CollectiveSample& sample : samples)
    csv += fmt::format("{},{},{},{},{:.7g}\n", to_string(sample.kind), sample.ranks, sample.nodes,
                       sample.bytes.value, sample.ns / 1e3);
  return csv;
}

}  // namespace mfsdp
