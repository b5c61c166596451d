#include "sim/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/text.hpp"
#include "sim/calibrate/collective_table.hpp"
#include "sim/calibrate/fit.hpp"
#include "sim/calibrate/machine_files.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// What a calibration is made of while it grows.
struct Draft {
  const CalibrationRequest& request;
  Measurements data;
  Gpu base;
  Gpu gpu;                          ///< what will be written
  CostTables tables;                ///< what prices will be made from
  std::int64_t gpus_per_node = 8;
  std::int64_t domain = 8;
  std::vector<CollectiveSample> inside;   ///< a domain
  std::vector<CollectiveSample> between;  ///< domains
  Calibration result;

  [[nodiscard]] std::string file_name(std::string_view ending) const {
    return request.output.stem().string() + std::string(ending);
  }
  [[nodiscard]] fs::path beside(std::string_view ending) const {
    return request.output.parent_path() / file_name(ending);
  }
};

std::string names_of(const std::vector<std::string>& files) {
  return printable(fmt::format("{}", fmt::join(files, ", ")));
}

void set_source(Gpu& gpu, const std::string& key, std::string source) {
  const auto found = std::ranges::find(gpu.sources, key, &std::pair<std::string, std::string>::first);
  if (found == gpu.sources.end())
    gpu.sources.emplace_back(key, std::move(source));
  else
    found->second = std::move(source);
}

void note_value(Draft& draft, const std::string& key, double value, double base,
                const std::string& source) {
  draft.result.values.push_back({.key = key, .value = value, .base = base, .source = source});
  set_source(draft.gpu, key, source);
}

void note_errors(Draft& draft, std::string group, std::string what, std::span<const double> errors,
                 Evaluation evaluation, const std::string& source) {
  draft.result.errors.push_back({.group = std::move(group),
                                 .what = std::move(what),
                                 .error = summarise(errors),
                                 .evaluation = evaluation,
                                 .tier = Tier::calibrated,
                                 .source = source});
}

/// A row that stands twice would predict itself when left out.
template <class Row, class Key>
Result<void> check_distinct(const std::vector<Row>& rows, Key key, std::string_view what) {
  std::set<decltype(key(rows.front()))> seen;
  for (const Row& row : rows)
    if (!seen.insert(key(row)).second)
      return fail("--calibrate", fmt::format("a shape of {} is measured twice; give each once",
                                             what));
  return {};
}

Result<void> add_gemm(Draft& draft) {
  const std::vector<GemmRow>& rows = draft.data.gemm;
  if (rows.empty()) return {};
  MFSDP_TRY(check_distinct(
      rows, [](const GemmRow& row) { return std::tuple(row.kind, row.m, row.n, row.k); }, "GEMM"));
  const std::string source = fmt::format("measured: {} GEMMs of {}", rows.size(),
                                         names_of(draft.data.gemm_files));
  draft.tables.gemm = rows;
  draft.gpu.tables.gemm = draft.file_name("_gemm.csv");
  draft.gpu.table_sms = draft.gpu.sms;
  draft.gpu.measured.gemm = true;
  draft.gpu.gemm_scale = 1;
  note_value(draft, "compute.gemm_scale", 1, draft.base.gemm_scale, source);
  draft.result.files.push_back({draft.beside("_gemm.csv"), gemm_csv(rows)});
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out}) {
    std::vector<double> all;
    for (const GemmKind kind : {GemmKind::forward, GemmKind::dgrad, GemmKind::wgrad}) {
      const std::vector<double> errors = gemm_errors(rows, draft.gpu, kind, evaluation);
      all.insert(all.end(), errors.begin(), errors.end());
    }
    note_errors(draft, "GEMM", "all", all, evaluation, names_of(draft.data.gemm_files));
  }
  return {};
}

Result<void> add_attention(Draft& draft) {
  const std::vector<AttentionRow>& rows = draft.data.attention;
  if (rows.empty()) return {};
  const auto key = [](const AttentionRow& row) {
    return std::tuple(row.backward, row.batch * row.heads, row.seq, row.head_dim);
  };
  MFSDP_TRY(check_distinct(rows, key, "attention"));
  const std::string source = fmt::format("measured: {} shapes of {}", rows.size(),
                                         names_of(draft.data.attention_files));
  draft.tables.attention = rows;
  draft.gpu.tables.attention = draft.file_name("_attention.csv");
  draft.gpu.measured.attention = true;
  draft.gpu.attention_scale = 1;
  note_value(draft, "compute.attention_scale", 1, draft.base.attention_scale, source);
  draft.result.files.push_back({draft.beside("_attention.csv"), attention_csv(rows)});
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out})
    for (const bool backward : {false, true})
      note_errors(draft, "attention", backward ? "backward" : "forward",
                  attention_errors(rows, draft.gpu, backward, evaluation), evaluation,
                  names_of(draft.data.attention_files));
  return {};
}

Result<void> add_copies(Draft& draft) {
  if (draft.data.copies.empty()) return {};
  MFSDP_LET(fit, fit_copies(draft.data.copies, draft.base));
  const std::string files = names_of(draft.data.copy_files);
  const std::string source = fmt::format("fitted: {} copies of {}", fit.errors.size(), files);
  draft.gpu.copy_fraction = fit.copy_fraction;
  note_value(draft, "memory.copy_fraction", fit.copy_fraction, draft.base.copy_fraction, source);
  if (fit.launch) {
    draft.gpu.launch = *fit.launch;
    note_value(draft, "compute.launch_ns", static_cast<double>(fit.launch->value),
               static_cast<double>(draft.base.launch.value), source);
  }
  note_errors(draft, "copy", "from 128 MiB moved", fit.errors, Evaluation::fit, files);
  if (!fit.left_out.empty())
    note_errors(draft, "copy", "from 128 MiB moved", fit.left_out, Evaluation::leave_one_out,
                files);
  return {};
}

/// `ranks` GPUs in nodes and domains as the measurements have them.
Result<Cluster> cluster_of(const Draft& draft, const Gpu& gpu, std::int64_t ranks) {
  MFSDP_LET(cluster, make_cluster(gpu, 1, 1));
  cluster.gpus = ranks;
  cluster.gpus_per_node = std::min(ranks, draft.gpus_per_node);
  cluster.nodes = ceil_div(ranks, draft.gpus_per_node);
  cluster.domain = draft.domain;
  cluster.nics_per_node = std::max<std::int64_t>(
      1, gpu.nics_per_node * cluster.gpus_per_node / gpu.gpus_per_node);
  return cluster;
}

/// Nodes, domains, and which collectives stay inside one.
Result<void> place_collectives(Draft& draft) {
  std::optional<std::int64_t> on_host;
  std::int64_t widest_host = 1;
  for (const CollectiveSample& sample : draft.data.collectives) {
    if (sample.nodes == 1) widest_host = std::max(widest_host, sample.ranks);
    const std::int64_t here = sample.ranks / sample.nodes;
    if (sample.nodes > 1 && on_host.value_or(here) != here)
      return fail(sample.place, fmt::format("has {} ranks on each host, an earlier run {}; give "
                                            "runs of one machine",
                                            here, *on_host));
    if (sample.nodes > 1) on_host = here;
  }
  const Gpu& base = draft.base;
  draft.gpus_per_node = on_host.value_or(std::max(base.gpus_per_node, widest_host));
  const bool rack = base.domain > base.gpus_per_node;
  draft.domain = std::max(widest_host, draft.gpus_per_node);
  if (rack)
    draft.domain =
        std::max(draft.domain, base.domain / draft.gpus_per_node * draft.gpus_per_node);
  draft.domain = draft.request.domain.value_or(draft.domain);
  for (const CollectiveSample& sample : draft.data.collectives) {
    if (sample.ranks > draft.domain && sample.ranks % draft.domain != 0)
      return fail(sample.place, fmt::format("{} ranks do not fill domains of {} GPUs",
                                            sample.ranks, draft.domain));
    (sample.ranks <= draft.domain ? draft.inside : draft.between).push_back(sample);
  }
  return {};
}

/// The table is written as of this very GPU. Prices divide the part of a time that grows with bytes
/// by link bandwidth * efficiency / 450 GB/s; so the efficiency makes that 1, and where fewer ranks
/// than all have fewer links (no switch), the table's times are stretched by what they lack.
void fit_link(Gpu& gpu, std::vector<CollectiveRow>& rows) {
  constexpr BytesPerNano kTableLink = 450;
  gpu.link_efficiency = kTableLink / gpu.link_bandwidth;
  if (!gpu.per_peer_bandwidth) return;
  CollectiveRow first;
  for (CollectiveRow& row : rows) {
    if (row.ranks != first.ranks) first = row;
    const double share =
        std::min(1.0, (row.ranks - 1) * *gpu.per_peer_bandwidth / gpu.link_bandwidth);
    const auto stretch = [&](double& ns, double latency) { ns = latency + (ns - latency) * share; };
    stretch(row.all_gather_ns, first.all_gather_ns);
    stretch(row.reduce_scatter_ns, first.reduce_scatter_ns);
    stretch(row.all_reduce_ns, first.all_reduce_ns);
  }
}

bool has_kind(std::span<const CollectiveSample> samples, CollectiveKind kind) {
  return std::ranges::any_of(samples, [&](const auto& sample) { return sample.kind == kind; });
}

Result<void> add_inside(Draft& draft) {
  if (draft.inside.empty()) return {};
  MFSDP_LET(cluster, cluster_of(draft, draft.base, draft.domain));
  const CollectiveModel base(draft.tables.collective, cluster);
  std::vector<std::int64_t> ranks;
  for (const CollectiveRow& row : draft.tables.collective)
    if (row.ranks <= static_cast<double>(draft.domain))
      ranks.push_back(static_cast<std::int64_t>(row.ranks));
  const std::vector<TimeCurve> curves = curves_of(draft.inside);
  MFSDP_LET(rows, complete_table(curves, ranks, base));
  const std::string files = names_of(draft.data.collective_files);
  for (const TimeCurve& curve : curves) {
    const std::vector<double> errors = leave_one_out_errors(curve, base);
    if (!errors.empty())
      note_errors(draft, "collective", fmt::format("{} on {}", to_string(curve.kind), curve.ranks),
                  errors, Evaluation::leave_one_out, files);
  }
  fit_link(draft.gpu, rows);
  std::string missing;
  for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                                    CollectiveKind::all_reduce})
    if (!has_kind(draft.inside, kind))
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", to_string(kind));
  note_value(draft, "link.efficiency", draft.gpu.link_efficiency, draft.base.link_efficiency,
             fmt::format("measured: the table is of this GPU, from {}", files));
  if (!missing.empty())
    draft.result.notes.push_back(
        fmt::format("not measured inside a domain, taken over from {}: {}", draft.base.name,
                    missing));
  draft.gpu.measured.collective = has_kind(draft.inside, CollectiveKind::all_gather) &&
                                  has_kind(draft.inside, CollectiveKind::reduce_scatter);
  draft.gpu.tables.collective = draft.file_name("_collective.csv");
  draft.tables.collective = rows;
  draft.result.files.push_back({draft.beside("_collective.csv"), collective_csv(rows)});
  return {};
}

Result<void> add_between(Draft& draft) {
  if (draft.between.empty()) return {};
  const auto most = std::ranges::max(draft.between, {}, &CollectiveSample::ranks).ranks;
  MFSDP_LET(cluster, cluster_of(draft, draft.gpu, most));
  const NetworkFit fit = fit_network(draft.between, draft.tables.collective, cluster);
  const std::string files = names_of(draft.data.collective_files);
  const std::string source =
      fmt::format("fitted: {} collectives of {}", draft.between.size(), files);
  draft.result.values.push_back({.key = "nic_gb_per_s",
                                 .value = fit.nic_bandwidth,
                                 .base = cluster.nic_bandwidth,
                                 .source = source});
  draft.result.values.push_back({.key = "nic_latency_ns",
                                 .value = static_cast<double>(fit.nic_latency.value),
                                 .base = static_cast<double>(cluster.nic_latency.value),
                                 .source = source});
  const std::int64_t largest =
      std::ranges::max(draft.between, {}, &CollectiveSample::bytes).bytes.value;
  std::array<std::vector<double>, 2> alone;
  for (std::size_t i = 0; i < draft.between.size(); ++i)
    alone[draft.between[i].bytes.value >= largest / kLargeMessages ? 1 : 0].push_back(
        fit.errors[i]);
  note_errors(draft, "network", "large messages, the two parameters alone", alone[1],
              Evaluation::fit, files);
  note_errors(draft, "network", "smaller ones, the two parameters alone", alone[0],
              Evaluation::fit, files);
  note_errors(draft, "network", "all, with the others' ratios", fit.left_out,
              Evaluation::leave_one_out, files);
  if (fit.nic_bandwidth > cluster.nic_bandwidth)
    draft.result.notes.push_back(fmt::format(
        "the fitted NIC is faster than {}'s {:g} GB/s: faster NICs, or a network that reduces",
        draft.base.name, cluster.nic_bandwidth));
  cluster.nic_bandwidth = fit.nic_bandwidth;
  cluster.nic_latency = fit.nic_latency;
  draft.gpu.tables.network = draft.file_name("_network.csv");
  draft.tables.network = draft.between;
  draft.result.files.push_back({draft.beside("_network.csv"), network_csv(draft.between)});
  draft.result.files.push_back(
      {draft.beside("_cluster.toml"),
       cluster_toml(cluster, draft.request.output.filename().string(), source)});
  return {};
}

/// Every value that no measurement determined keeps the base's, and its source says so.
void take_over_sources(Draft& draft) {
  for (auto& [key, source] : draft.gpu.sources)
    source = fmt::format("taken over from {}: {}", draft.base.name, source);
  for (const char* key :
       {"compute.bf16_tflops", "compute.fp32_tflops", "compute.sms", "compute.gemm_scale",
        "compute.attention_scale", "compute.launch_ns", "memory.capacity_bytes", "memory.gb_per_s",
        "memory.copy_fraction", "memory.runtime_bytes", "memory.host_gb_per_s", "link.gb_per_s",
        "link.efficiency", "link.domain", "link.collective_sms", "node.gpus", "node.nics",
        "node.nic_gb_per_s", "node.nic_latency_ns"})
    if (std::ranges::find(draft.gpu.sources, key, [](const auto& entry) { return entry.first; }) ==
        draft.gpu.sources.end())
      set_source(draft.gpu, key, "taken over from " + draft.base.name);
}

/// As it will be found from the new file: by name in the catalogue, or where it lies.
fs::path taken_over(const fs::path& table, const fs::path& gpus_dir) {
  if (table.empty()) return {};
  const fs::path inside = table.lexically_relative(gpus_dir);
  const bool below = !inside.empty() && *inside.begin() != "..";
  return below ? inside : fs::absolute(table);
}

/// Prices every collective with the files' own numbers. A message that took longer than a larger
/// one is not priced as measured, which is said.
Result<void> check_prices(Draft& draft) {
  if (draft.data.collectives.empty()) return {};
  Gpu gpu = draft.gpu;
  const auto most = std::ranges::max(draft.data.collectives, {}, &CollectiveSample::ranks).ranks;
  MFSDP_LET(cluster, cluster_of(draft, gpu, std::max(most, draft.domain)));
  for (const FittedValue& value : draft.result.values) {
    if (value.key == "nic_gb_per_s") cluster.nic_bandwidth = value.value;
    if (value.key == "nic_latency_ns") cluster.nic_latency = Nanos(std::llround(value.value));
  }
  const CostModel costs(cluster, draft.tables);
  constexpr double kReproduced = 0.03;
  std::vector<double> errors;
  std::size_t off = 0;
  for (const CollectiveSample& sample : draft.data.collectives) {
    const CollectiveCost cost =
        costs.collective(sample.kind, sample.bytes, {.ranks = sample.ranks});
    errors.push_back(static_cast<double>(cost.duration.value) / sample.ns - 1);
    if (std::abs(errors.back()) > kReproduced) ++off;
  }
  note_errors(draft, "collective", "all, priced with the written files", errors, Evaluation::fit,
              names_of(draft.data.collective_files));
  if (off > 0)
    draft.result.notes.push_back(fmt::format(
        "{} of {} collectives are priced more than 3 % off: they took longer than larger ones, or "
        "differ between runs",
        off, errors.size()));
  return {};
}

void note_device(Draft& draft) {
  for (const std::string& device : draft.data.devices) {
    std::string chip = draft.base.name.substr(0, draft.base.name.find('_'));
    for (char& c : chip) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (device.find(chip) == std::string::npos)
      draft.result.notes.push_back(
          fmt::format("the files were measured on \"{}\", values not measured are {}'s (--gpu)",
                      printable(device), draft.base.name));
  }
}

}  // namespace

Result<Calibration> calibrate(const CalibrationRequest& request) {
  MFSDP_LET(data, read_measurements(request.files));
  MFSDP_LET(base, load_gpu(request.gpu, request.gpus_dir));
  MFSDP_LET(tables, load_cost_tables(base.tables));
  Draft draft{.request = request,
              .data = std::move(data),
              .base = base,
              .gpu = base,
              .tables = std::move(tables),
              .inside = {},
              .between = {},
              .result = {}};
  draft.gpu.tables = {.gemm = taken_over(base.tables.gemm, request.gpus_dir),
                      .attention = taken_over(base.tables.attention, request.gpus_dir),
                      .collective = taken_over(base.tables.collective, request.gpus_dir),
                      .network = taken_over(base.tables.network, request.gpus_dir)};
  take_over_sources(draft);
  note_device(draft);
  MFSDP_TRY(add_gemm(draft));
  MFSDP_TRY(add_attention(draft));
  MFSDP_TRY(add_copies(draft));
  MFSDP_TRY(place_collectives(draft));
  MFSDP_TRY(add_inside(draft));
  MFSDP_TRY(add_between(draft));
  MFSDP_TRY(check_prices(draft));
  draft.gpu.calibration =
      draft.gpu.measured == MeasuredParts{true, true, true} ? "measured" : "datasheet";
  const std::string toml = gpu_toml(draft.gpu);
  MFSDP_LET(read_back, parse_gpu(toml, request.output.string()));
  draft.result.files.push_back({request.output, toml});
  draft.result.gpu = std::move(read_back);
  draft.result.gpu.name = request.output.stem().string();
  return std::move(draft.result);
}

}  // namespace mfsdp
