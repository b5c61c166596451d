#include "sim/hardware/gpu_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/amount.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/hardware/power.hpp"

namespace mfsdp {
namespace {

constexpr FieldRange kTeraflops{0.01, 1e6};
constexpr FieldRange kScale{0.001, 1000};
constexpr FieldRange kCopyFraction{0.01, 1};
constexpr FieldRange kWatts{1, 1e5};
constexpr FieldRange kBytes{1e6, 1e15};  // up to a petabyte
constexpr FieldRange kRuntime{0, 1e15};

// ---- assumptions, where a file has data-sheet figures alone

/// The dense peak of the GPU of the tables that every GPU without its own uses.
constexpr Teraflops kTablesBf16 = 989;
/// FP32 without tensor cores has at least this share of the dense bf16 peak in the catalogue (A100).
constexpr double kFp32Share = 1.0 / 16;
constexpr std::int64_t kLaunchNs = 3000;
constexpr double kCopyShare = 0.88;
constexpr std::int64_t kRuntimeBytes = 961'413'120;
constexpr std::int64_t kFirstCommunicatorBytes = 901'775'360;
constexpr std::int64_t kCommunicatorBytes = 509'607'936;
constexpr std::string_view kRuntimeSource = "assumed as measured on an H200";
/// A PCIe link moves this share of its bandwidth to and from the host: 51.5 of 63 GB/s.
constexpr double kHostShare = 0.82;
constexpr BytesPerNano kHostBandwidth = 51.5;
constexpr std::int64_t kGpusPerNode = 8;
constexpr std::int64_t kNicLatencyNs = 2000;

/// Assumptions about a node by its link, as in the files of the catalogue.
struct UsualNode {
  double efficiency = 1;
  std::int64_t collective_sms = 0;
  std::int64_t nics = 0;
  BytesPerNano nic_bandwidth = 0;
};

UsualNode usual_node(LinkKind link) {
  switch (link) {
    case LinkKind::nvlink:
      return {.efficiency = 1, .collective_sms = 24, .nics = 8, .nic_bandwidth = 50};
    case LinkKind::xgmi:
      return {.efficiency = 0.9, .collective_sms = 56, .nics = 8, .nic_bandwidth = 50};
    case LinkKind::pcie: break;
  }
  return {.efficiency = 0.9, .collective_sms = 4, .nics = 2, .nic_bandwidth = 25};
}

/// Reads fields that a data sheet does not have. Their defaults go to gpu.assumed.
class Assumptions {
 public:
  Assumptions(TomlFields& fields, Gpu& gpu) : fields_(fields), gpu_(gpu) {}

  double number(std::string_view key, FieldRange range, double otherwise) {
    if (const auto given = fields_.optional_number(key, range)) return *given;
    gpu_.assumed.push_back(fmt::format("{} {:.4g}", key, otherwise));
    return otherwise;
  }

  std::int64_t integer(std::string_view key, FieldRange range, std::int64_t otherwise) {
    if (fields_.has(key)) return fields_.integer(key, range);
    static_cast<void>(fields_.find(key));  // a known key, for the closest one of a misspelt key
    gpu_.assumed.push_back(fmt::format("{} {}", key, otherwise));
    return otherwise;
  }

 private:
  TomlFields& fields_;
  Gpu& gpu_;
};

/// Shown where a required key is missing.
void give_examples(TomlFields& fields) {
  fields.example("compute.bf16_tflops", "165.2: dense, with FP32 accumulation");
  fields.example("compute.sms", "128");
  fields.example("memory.capacity_bytes", "\"24 GB\"");
  fields.example("memory.gb_per_s", "1008");
  fields.example("link.kind", "\"pcie\"");
  fields.example("link.gb_per_s", "31: to all peers together, per direction");
}

LinkKind link_kind(TomlFields& fields) {
  const auto kind = parse<LinkKind>(fields.text("link.kind"));
  if (!kind && fields.has("link.kind"))
    fields.reject("link.kind", "must be " + name_list<LinkKind>());
  return kind.value_or(LinkKind::nvlink);
}

/// "measured" stands for all parts. A GPU file with some measured parts lists them.
MeasuredParts measured_parts(TomlFields& fields, bool all) {
  MeasuredParts parts{.gemm = all, .attention = all, .collective = all};
  std::string listed = fields.text_or("measured", "");
  if (listed.empty()) return parts;
  listed += ", ";
  for (std::string_view rest = listed; !rest.empty(); rest.remove_prefix(rest.find(", ") + 2)) {
    const std::string_view part = rest.substr(0, rest.find(", "));
    if (part == "gemm")
      parts.gemm = true;
    else if (part == "attention")
      parts.attention = true;
    else if (part == "collective")
      parts.collective = true;
    else
      fields.reject("measured",
                    "must list measured parts, separated by \", \": gemm, attention, collective");
  }
  return parts;
}

/// Formats of matrix units; NVFP4 alone has a rate that bf16's does not give.
void read_formats(TomlFields& fields, Gpu& gpu) {
  constexpr std::string_view kKey = "compute.matmul_formats";
  if (const std::string list = fields.text_or(kKey, ""); !list.empty()) {
    const auto formats = parse_formats(list);
    if (!formats)
      fields.reject(kKey, "must list formats, separated by \", \": " + name_list<MatmulFormat>());
    gpu.formats = formats.value_or(std::vector<MatmulFormat>{});
  }
  gpu.nvfp4 = fields.optional_number("compute.nvfp4_tflops", kTeraflops).value_or(0);
  if (gpu.multiplies(MatmulFormat::nvfp4) && gpu.nvfp4 == 0)
    fields.reject(kKey, "must not list nvfp4 without compute.nvfp4_tflops");
}

void read_compute(TomlFields& fields, Assumptions& assumed, Gpu& gpu) {
  gpu.title = fields.text_or("title", "");
  gpu.calibration = fields.text_or("calibration", "datasheet");
  if (gpu.calibration != "measured" && gpu.calibration != "datasheet")
    fields.reject("calibration", "must be \"measured\" or \"datasheet\"");
  gpu.measured = measured_parts(fields, gpu.calibration == "measured");
  gpu.bf16 = fields.number("compute.bf16_tflops", kTeraflops);
  gpu.fp32 = assumed.number("compute.fp32_tflops", kTeraflops, gpu.bf16 * kFp32Share);
  gpu.sms = fields.integer("compute.sms", kCountRange);
  read_formats(fields, gpu);
  const bool own_tables = fields.has("tables.gemm");
  gpu.gemm_scale =
      assumed.number("compute.gemm_scale", kScale, own_tables ? 1 : gpu.bf16 / kTablesBf16);
  gpu.attention_scale = assumed.number("compute.attention_scale", kScale, gpu.gemm_scale);
  gpu.launch = Nanos(assumed.integer("compute.launch_ns", kNanosecondRange, kLaunchNs));
  constexpr FieldRange kL2Range{0, 1e12};
  if (fields.optional_number("compute.l2_bytes", kL2Range))
    gpu.l2 = Bytes(fields.integer("compute.l2_bytes", kL2Range));
}

/// A whole number of bytes, or text such as "24 GB".
Bytes read_capacity(TomlFields& fields) {
  constexpr std::string_view kKey = "memory.capacity_bytes";
  const TomlEntry* entry = fields.find(kKey);
  const auto* text = entry == nullptr ? nullptr : std::get_if<std::string>(&entry->value);
  if (text == nullptr) return Bytes(fields.integer(kKey, kBytes));
  const auto bytes = parse_amount(*text, kByteWords);
  const auto in_range = [](std::int64_t value) {
    return static_cast<double>(value) >= kBytes.least && static_cast<double>(value) <= kBytes.most;
  };
  if (bytes && in_range(*bytes)) return Bytes(*bytes);
  fields.reject(kKey, "must be a whole number of bytes, or text such as \"24 GB\"");
  return Bytes(0);
}

void read_memory(TomlFields& fields, Assumptions& assumed, Gpu& gpu) {
  gpu.capacity = read_capacity(fields);
  gpu.memory_bandwidth = fields.number("memory.gb_per_s", kBandwidthRange);
  gpu.copy_fraction = assumed.number("memory.copy_fraction", kCopyFraction, kCopyShare);
  gpu.runtime = Bytes(assumed.integer("memory.runtime_bytes", kRuntime, kRuntimeBytes));
  gpu.first_communicator =
      Bytes(assumed.integer("memory.first_communicator_bytes", kRuntime, kFirstCommunicatorBytes));
  gpu.communicator =
      Bytes(assumed.integer("memory.communicator_bytes", kRuntime, kCommunicatorBytes));
  gpu.runtime_source = fields.text_or("memory.runtime_source", std::string(kRuntimeSource));
  if (fields.sound() && gpu.runtime >= gpu.capacity) {
    const bool given = fields.has("memory.runtime_bytes");
    fields.reject(
        given ? "memory.runtime_bytes" : "memory.capacity_bytes",
        given ? "must be less than memory.capacity_bytes"
              : fmt::format("must be more than the {} bytes of CUDA's context", gpu.runtime.value));
  }
}

void read_links(TomlFields& fields, Assumptions& assumed, Gpu& gpu) {
  gpu.link = link_kind(fields);
  const UsualNode usual = usual_node(gpu.link);
  gpu.link_bandwidth = fields.number("link.gb_per_s", kBandwidthRange);
  gpu.host_bandwidth =
      assumed.number("memory.host_gb_per_s", kBandwidthRange,
                     gpu.link == LinkKind::pcie ? gpu.link_bandwidth * kHostShare : kHostBandwidth);
  gpu.link_efficiency = assumed.number("link.efficiency", kScale, usual.efficiency);
  gpu.per_peer_bandwidth = fields.optional_number("link.per_peer_gb_per_s", kBandwidthRange);
  gpu.gpus_per_node = assumed.integer("node.gpus", kCountRange, kGpusPerNode);
  gpu.domain = assumed.integer("link.domain", kCountRange, gpu.gpus_per_node);
  gpu.collective_sms =
      assumed.integer("link.collective_sms", kCountRange,
                      std::min(usual.collective_sms, std::max<std::int64_t>(1, gpu.sms)));
  gpu.nics_per_node = assumed.integer("node.nics", kCountRange, usual.nics);
  gpu.nic_bandwidth = assumed.number("node.nic_gb_per_s", kBandwidthRange, usual.nic_bandwidth);
  gpu.nic_line_rate = fields.optional_number("node.nic_line_gb_per_s", kBandwidthRange);
  gpu.nic_latency = Nanos(assumed.integer("node.nic_latency_ns", kNanosecondRange, kNicLatencyNs));
  if (fields.optional_number("node.host_launch_ns", kNanosecondRange))
    gpu.host_launch = Nanos(fields.integer("node.host_launch_ns", kNanosecondRange));
  if (fields.sound() && gpu.collective_sms > gpu.sms)
    fields.reject("link.collective_sms", "must not exceed compute.sms");
}

/// The limits that the owner of a machine chooses from; none where the file states the limit.
std::optional<PowerRange> read_power_range(TomlFields& fields) {
  const auto least = fields.optional_number("power.least_w", kWatts);
  const auto most = fields.optional_number("power.most_w", kWatts);
  if (!least && !most) return std::nullopt;
  if (!least || !most || *least > *most)
    fields.reject(least ? "power.least_w" : "power.most_w",
                  "must be given with both power.least_w and power.most_w, in this order");
  if (fields.has("power.limit_w"))
    fields.reject("power.limit_w",
                  "contradicts power.least_w and power.most_w, between which the owner sets it");
  if (!fields.has("power.tables_w"))
    fields.reject("power.tables_w", "must be given with power.least_w and power.most_w");
  return PowerRange{.least = least.value_or(0), .most = most.value_or(0)};
}

void read_power(TomlFields& fields, Gpu& gpu) {
  gpu.owner_sets_power = read_power_range(fields);
  const auto own = fields.optional_number("power.limit_w", kWatts);
  // Without tables of its own a GPU has scales that hold at its own limit.
  const auto given = fields.optional_number("power.tables_w", kWatts);
  const auto tables = given ? given : own;
  if (gpu.owner_sets_power && tables) gpu.power = {.own = *tables, .tables = *tables};
  if (gpu.owner_sets_power) return;
  if (!own && tables)
    fields.reject("power.tables_w",
                  "must be given with power.limit_w, or with power.least_w and power.most_w");
  if (!fields.sound() || !own) return;
  if (*own > *tables)
    fields.reject("power.limit_w", "must not exceed power.tables_w: nothing is known above it");
  if (*own < kLeastPowerShare * *tables)
    fields.reject("power.limit_w",
                  fmt::format("must be at least {} of power.tables_w: the law was never compared "
                              "below it",
                              kLeastPowerShare));
  gpu.power = {.own = *own, .tables = *tables};
}

void read_tables(TomlFields& fields, Gpu& gpu) {
  const bool given = fields.has("tables.gemm") || fields.has("tables.attention") ||
                     fields.has("tables.collective");
  const auto path = [&](std::string_view key) {
    return std::filesystem::path(given ? fields.text(key) : fields.text_or(key, ""));
  };
  gpu.tables = TableFiles{.gemm = path("tables.gemm"),
                          .gemm_fp8 = fields.text_or("tables.gemm_fp8", ""),
                          .gemm_fp8_blocks = fields.text_or("tables.gemm_fp8_blocks", ""),
                          .attention = path("tables.attention"),
                          .attention_warpgroups = fields.text_or("tables.attention_warpgroups", ""),
                          .attention_masked = fields.text_or("tables.attention_masked", ""),
                          .collective = path("tables.collective"),
                          .network = fields.text_or("tables.network", ""),
                          .grouped_warpgroups = fields.text_or("tables.grouped_warpgroups", "")};
  if (fields.optional_number("tables.sms", kCountRange))
    gpu.table_sms = fields.integer("tables.sms", kCountRange);
}

void read_published(TomlFields& fields, Gpu& gpu) {
  const bool has_published = fields.has("published.gemm") || fields.has("published.attention");
  if (const std::string said = fields.text_or("tables.default", ""); !said.empty()) {
    gpu.default_tables = parse<PriceTables>(said);
    if (!gpu.default_tables || !has_published)
      fields.reject("tables.default", has_published ? "must be " + name_list<PriceTables>()
                                                    : "needs tables in [published] to choose from");
  }
  if (!has_published) return;
  gpu.published = PublishedTables{
      .gemm = fields.text_or("published.gemm", ""),
      .attention = fields.text_or("published.attention", ""),
      .grouped = fields.text_or("published.grouped", ""),
      .sms = fields.integer("published.sms", kCountRange),
      .of = fields.text_or("published.of", ""),
      .scale = fields.optional_number("published.scale", kScale).value_or(1),
      .all_to_all = fields.optional_number("published.all_to_all_gb_per_s", kBandwidthRange),
      .source = fields.text("published.source")};
}

}  // namespace

void inherit_gpu(TomlFields& fields, const TomlFields& base) {
  std::vector<std::string_view> left_out{"title",     "calibration",    "measured",
                                         "published", "tables.default", "like"};
  // A limit that one file states replaces a range of the other, and the reverse.
  if (fields.has("power.limit_w"))
    left_out.insert(left_out.end(), {"power.least_w", "power.most_w"});
  if (fields.has("power.least_w")) left_out.emplace_back("power.limit_w");
  fields.inherit(base, left_out);
}

Result<Gpu> read_gpu_fields(TomlFields& fields) {
  if (fields.has("gpu") && !fields.has("compute.bf16_tflops"))
    return fields.refuse(
        "describes a cluster, as it names a gpu: give it to --cluster; --gpu takes "
        "the file of one GPU, with [compute], [memory] and [link]");
  give_examples(fields);
  Gpu gpu;
  Assumptions assumed(fields, gpu);
  read_compute(fields, assumed, gpu);
  read_memory(fields, assumed, gpu);
  read_links(fields, assumed, gpu);
  read_power(fields, gpu);
  read_tables(fields, gpu);
  read_published(fields, gpu);
  gpu.sources = read_sources(fields);
  MFSDP_TRY(fields.finish());
  return gpu;
}

}  // namespace mfsdp
