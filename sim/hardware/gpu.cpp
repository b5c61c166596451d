#include "sim/hardware/gpu.hpp"

#include <fmt/format.h>

#include "core/base/read_file.hpp"
#include "core/base/toml_fields.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/hardware/power.hpp"

namespace mfsdp {
namespace {

constexpr FieldRange kTeraflops{0.01, 1e6};
constexpr FieldRange kScale{0.001, 1000};
constexpr FieldRange kCopyFraction{0.01, 1};
constexpr FieldRange kWatts{1, 1e5};
constexpr FieldRange kBytes{1e6, 1e15};  // a petabyte

LinkKind link_kind(TomlFields& fields) {
  const auto kind = parse<LinkKind>(fields.text("link.kind"));
  if (!kind) fields.reject("link.kind", "must be " + name_list<LinkKind>());
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

void read_compute(TomlFields& fields, Gpu& gpu) {
  gpu.title = fields.text("title");
  gpu.calibration = fields.text("calibration");
  if (gpu.calibration != "measured" && gpu.calibration != "datasheet")
    fields.reject("calibration", "must be \"measured\" or \"datasheet\"");
  gpu.measured = measured_parts(fields, gpu.calibration == "measured");
  gpu.bf16 = fields.number("compute.bf16_tflops", kTeraflops);
  gpu.fp32 = fields.number("compute.fp32_tflops", kTeraflops);
  gpu.sms = fields.integer("compute.sms", kCountRange);
  gpu.gemm_scale = fields.number("compute.gemm_scale", kScale);
  gpu.attention_scale = fields.number("compute.attention_scale", kScale);
  gpu.launch = Nanos(fields.integer("compute.launch_ns", kNanosecondRange));
  constexpr FieldRange kL2Range{0, 1e12};
  if (fields.optional_number("compute.l2_bytes", kL2Range))
    gpu.l2 = Bytes(fields.integer("compute.l2_bytes", kL2Range));
}

void read_memory(TomlFields& fields, Gpu& gpu) {
  gpu.capacity = Bytes(fields.integer("memory.capacity_bytes", kBytes));
  gpu.memory_bandwidth = fields.number("memory.gb_per_s", kBandwidthRange);
  gpu.copy_fraction = fields.number("memory.copy_fraction", kCopyFraction);
  gpu.runtime = Bytes(fields.integer("memory.runtime_bytes", FieldRange{0, 1e15}));
  gpu.first_communicator =
      Bytes(fields.integer("memory.first_communicator_bytes", FieldRange{0, 1e15}));
  gpu.communicator = Bytes(fields.integer("memory.communicator_bytes", FieldRange{0, 1e15}));
  gpu.runtime_source = fields.text("memory.runtime_source");
  gpu.host_bandwidth = fields.number("memory.host_gb_per_s", kBandwidthRange);
  if (gpu.runtime >= gpu.capacity)
    fields.reject("memory.runtime_bytes", "must be less than memory.capacity_bytes");
}

void read_links(TomlFields& fields, Gpu& gpu) {
  gpu.link = link_kind(fields);
  gpu.link_bandwidth = fields.number("link.gb_per_s", kBandwidthRange);
  gpu.link_efficiency = fields.number("link.efficiency", kScale);
  gpu.per_peer_bandwidth = fields.optional_number("link.per_peer_gb_per_s", kBandwidthRange);
  gpu.domain = fields.integer("link.domain", kCountRange);
  gpu.collective_sms = fields.integer("link.collective_sms", kCountRange);
  gpu.gpus_per_node = fields.integer("node.gpus", kCountRange);
  gpu.nics_per_node = fields.integer("node.nics", kCountRange);
  gpu.nic_bandwidth = fields.number("node.nic_gb_per_s", kBandwidthRange);
  gpu.nic_line_rate = fields.optional_number("node.nic_line_gb_per_s", kBandwidthRange);
  gpu.nic_latency = Nanos(fields.integer("node.nic_latency_ns", kNanosecondRange));
  if (fields.optional_number("node.host_launch_ns", kNanosecondRange))
    gpu.host_launch = Nanos(fields.integer("node.host_launch_ns", kNanosecondRange));
  if (gpu.collective_sms > gpu.sms)
    fields.reject("link.collective_sms", "must not exceed compute.sms");
}

void read_power(TomlFields& fields, Gpu& gpu) {
  const auto own = fields.optional_number("power.limit_w", kWatts);
  const auto tables = fields.optional_number("power.tables_w", kWatts);
  if (own.has_value() != tables.has_value())
    fields.reject("power.limit_w", "must be given together with power.tables_w");
  if (own && tables && *own > *tables)
    fields.reject("power.limit_w", "must not exceed power.tables_w: nothing is known above it");
  if (own && tables && *own < kLeastPowerShare * *tables)
    fields.reject("power.limit_w",
                  fmt::format("must be at least {} of power.tables_w: the law was never compared "
                              "below it",
                              kLeastPowerShare));
  if (own && tables) gpu.power = {.own = *own, .tables = *tables};
}

void read_tables(TomlFields& fields, Gpu& gpu) {
  const bool given = fields.has("tables.gemm") || fields.has("tables.attention") ||
                     fields.has("tables.collective");
  const auto path = [&](std::string_view key) {
    return std::filesystem::path(given ? fields.text(key) : fields.text_or(key, ""));
  };
  gpu.tables = TableFiles{.gemm = path("tables.gemm"),
                          .attention = path("tables.attention"),
                          .attention_warpgroups = fields.text_or("tables.attention_warpgroups", ""),
                          .collective = path("tables.collective"),
                          .network = fields.text_or("tables.network", "")};
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

Catalogue gpu_catalogue(const std::filesystem::path& gpus_dir) {
  return {.folder = gpus_dir, .thing = "GPU", .flag = "--gpu", .list_flag = "--list-gpus"};
}

/// Looks beside the GPU's file first, then in the catalogue, because users copy files of the
/// catalogue. If neither has it, returns the path beside the file, for the error message.
std::filesystem::path find_table(const std::filesystem::path& table,
                                 const std::filesystem::path& folder,
                                 const std::filesystem::path& gpus_dir) {
  std::error_code ignored;
  const bool beside = std::filesystem::exists(folder / table, ignored);
  if (!beside && std::filesystem::exists(gpus_dir / table, ignored)) return gpus_dir / table;
  return folder / table;
}

}  // namespace

Bytes runtime_bytes(const Gpu& gpu, std::int64_t communicators) {
  if (communicators == 0) return gpu.runtime;
  return gpu.runtime + gpu.first_communicator + gpu.communicator * (communicators - 1);
}

Result<Gpu> parse_gpu(std::string_view text, const std::string& where) {
  MFSDP_LET(fields, TomlFields::parse(text, where));
  Gpu gpu;
  read_compute(fields, gpu);
  read_memory(fields, gpu);
  read_links(fields, gpu);
  read_power(fields, gpu);
  read_tables(fields, gpu);
  read_published(fields, gpu);
  gpu.sources = read_sources(fields);
  MFSDP_TRY(fields.finish());
  return gpu;
}

Result<Gpu> load_gpu(const std::string& name_or_path, const std::filesystem::path& gpus_dir) {
  MFSDP_LET(path, find_in_catalogue(name_or_path, gpu_catalogue(gpus_dir)));
  MFSDP_LET(text, read_file(path, "a GPU's TOML file", kMostTomlBytes));
  MFSDP_LET(gpu, parse_gpu(text, path.string()));
  gpu.name = path.stem().string();
  const std::filesystem::path folder = path.parent_path();
  const auto locate = [&](std::filesystem::path& table, std::string_view otherwise) {
    if (!table.empty())
      table = find_table(table, folder, gpus_dir);
    else if (!otherwise.empty())
      table = gpus_dir / "tables" / otherwise;
  };
  locate(gpu.tables.gemm, "h200_gemm_bf16.csv");
  locate(gpu.tables.attention, "h200_attention_bf16.csv");
  locate(gpu.tables.attention_warpgroups, "");
  locate(gpu.tables.collective, "h200_nccl.csv");
  locate(gpu.tables.network, "");
  if (gpu.published) {
    locate(gpu.published->gemm, "");
    locate(gpu.published->attention, "");
    locate(gpu.published->grouped, "");
  }
  return gpu;
}

Result<std::vector<std::string>> list_gpus(const std::filesystem::path& gpus_dir) {
  return list_catalogue(gpu_catalogue(gpus_dir));
}

}  // namespace mfsdp
