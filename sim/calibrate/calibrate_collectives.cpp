#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "sim/calibrate/calibration_state.hpp"
#include "sim/calibrate/collective_table.hpp"
#include "sim/calibrate/fit.hpp"
#include "sim/calibrate/machine_files.hpp"

namespace mfsdp {
namespace {

/// `ranks` GPUs in nodes and domains as in the measurements.
Result<Cluster> cluster_of(const CalibrationState& state, const Gpu& gpu, std::int64_t ranks) {
  MFSDP_LET(cluster, make_cluster(gpu, 1, 1));
  cluster.gpus = ranks;
  cluster.gpus_per_node = std::min(ranks, state.gpus_per_node);
  cluster.nodes = ceil_div(ranks, state.gpus_per_node);
  cluster.domain = state.domain;
  cluster.nics_per_node =
      std::max<std::int64_t>(1, gpu.nics_per_node * cluster.gpus_per_node / gpu.gpus_per_node);
  return cluster;
}

/// Determines nodes, domains, and which collectives are inside a domain.
Result<void> place_collectives(CalibrationState& state) {
  std::optional<std::int64_t> on_host;
  std::int64_t widest_host = 1;
  for (const CollectiveSample& sample : state.data.collectives) {
    if (sample.nodes == 1) widest_host = std::max(widest_host, sample.ranks);
    const std::int64_t here = sample.ranks / sample.nodes;
    if (sample.nodes > 1 && on_host.value_or(here) != here)
      return fail(sample.place, fmt::format("has {} ranks on each host, an earlier run {}; give "
                                            "runs of one machine",
                                            here, *on_host));
    if (sample.nodes > 1) on_host = here;
  }
  const Gpu& base = state.base;
  state.gpus_per_node = on_host.value_or(std::max(base.gpus_per_node, widest_host));
  const bool rack = base.domain > base.gpus_per_node;
  state.domain = std::max(widest_host, state.gpus_per_node);
  if (rack)
    state.domain = std::max(state.domain, base.domain / state.gpus_per_node * state.gpus_per_node);
  state.domain = state.request.domain.value_or(state.domain);
  // Repeated samples are merged, so that no sample predicts its repetition when it is left out.
  for (const CollectiveSample& sample : mean_of_repeats(state.data.collectives)) {
    if (sample.ranks > state.domain && sample.ranks % state.domain != 0)
      return fail(sample.place, fmt::format("{} ranks do not fill domains of {} GPUs", sample.ranks,
                                            state.domain));
    (sample.ranks <= state.domain ? state.inside : state.between).push_back(sample);
  }
  return {};
}

/// The table is written for this very GPU. Prices divide the part of a time that grows with bytes
/// by link bandwidth * efficiency / 450 GB/s, so the efficiency makes that factor 1. If a smaller
/// number of ranks has fewer links (no switch), the table's times are scaled to compensate.
void fit_link(Gpu& gpu, std::vector<CollectiveRow>& rows) {
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

struct Kinds {
  std::string measured;  ///< "all_gather, all_reduce"
  std::string missing;
};

Kinds kinds_of(std::span<const CollectiveSample> samples) {
  Kinds kinds;
  for (const CollectiveKind kind :
       {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_reduce}) {
    std::string& list = has_kind(samples, kind) ? kinds.measured : kinds.missing;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", to_string(kind));
  }
  return kinds;
}

Result<void> add_inside(CalibrationState& state) {
  if (state.inside.empty()) return {};
  MFSDP_LET(cluster, cluster_of(state, state.base, state.domain));
  const CollectiveModel base(state.tables.collective, cluster);
  std::vector<std::int64_t> ranks;
  for (const CollectiveRow& row : state.tables.collective)
    if (row.ranks <= static_cast<double>(state.domain))
      ranks.push_back(static_cast<std::int64_t>(row.ranks));
  const std::vector<TimeCurve> curves = curves_of(state.inside);
  MFSDP_LET(rows, complete_table(curves, ranks, base));
  const std::string files = names_of(state.data.collective_files);
  for (const TimeCurve& curve : curves) {
    const std::vector<double> errors = leave_one_out_errors(curve, base);
    if (!errors.empty())
      note_errors(state, "collective", fmt::format("{} on {}", to_string(curve.kind), curve.ranks),
                  errors, Evaluation::leave_one_out, files);
  }
  fit_link(state.gpu, rows);
  auto [measured, missing] = kinds_of(state.inside);
  if (!missing.empty()) {
    state.result.notes.push_back(fmt::format("not measured inside a domain, taken over from {}: {}",
                                             state.base.name, missing));
    missing = fmt::format("; taken over from {}: {}", state.base.name, missing);
  }
  const std::string source = fmt::format("measured: {} of {}{}", measured, files, missing);
  note_value(state, "link.efficiency", state.gpu.link_efficiency, state.base.link_efficiency,
             "the table of collectives is of this GPU");
  set_source(state.gpu, "tables.collective", source);
  state.gpu.measured.collective = has_kind(state.inside, CollectiveKind::all_gather) &&
                                  has_kind(state.inside, CollectiveKind::reduce_scatter);
  state.gpu.tables.collective = state.file_name("_collective.csv");
  state.tables.collective = rows;
  state.result.files.push_back({state.beside("_collective.csv"), collective_csv(rows)});
  return {};
}

/// Mean relative excess of the modelled times of large messages, by the two parameters alone.
double excess_of_large(const NetworkFit& fit, std::span<const CollectiveSample> samples) {
  const std::int64_t largest = std::ranges::max(samples, {}, &CollectiveSample::bytes).bytes.value;
  double sum = 0;
  double count = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].bytes.value < largest / kLargeMessages) continue;
    sum += fit.errors[i];
    count += 1;
  }
  return sum / count;
}

/// The bound of a test that a faster NIC would not shorten; empty if one would.
std::string_view bound_of_test(const NetworkFit& fit) {
  switch (fit.bound) {
    case NicBound::link: return "the link inside nodes";
    case NicBound::latency: return "latency, as its messages are small";
    case NicBound::samples:
    case NicBound::line_rate: break;
  }
  return "";
}

/// A note if large messages were faster than the model with the NIC at its bound; else empty.
std::string doubt_of_network(const NetworkFit& fit, std::span<const CollectiveSample> samples) {
  constexpr double kWorthSaying = 0.02;
  const double excess = excess_of_large(fit, samples);
  if (excess < kWorthSaying) return "";
  return fmt::format(
      ". Large messages took {:.1f} % less time than modelled with that. Possible causes: a "
      "network that reaches a larger part of its line rate; switches that reduce (NVLS, SHARP); "
      "faster NICs (give --gpu a file with their node.nic_gb_per_s); a wrong number of nodes",
      100 * (1 - 1 / (1 + excess)));
}

/// Notes about doubtful parts of a fitted network.
void note_network(CalibrationState& state, const NetworkFit& fit, BytesPerNano line_rate) {
  std::vector<std::string>& notes = state.result.notes;
  if (const Kinds kinds = kinds_of(state.between); !kinds.missing.empty())
    notes.push_back(
        fmt::format("not measured between domains, priced with the NIC that {} fitted: "
                    "{}",
                    kinds.measured, kinds.missing));
  const std::string doubt = doubt_of_network(fit, state.between);
  if (const std::string_view what = bound_of_test(fit); !what.empty())
    notes.push_back(fmt::format(
        "nic_gb_per_s: the test is bound by {}: the NIC is at least {:.4g} GB/s, and no "
        "measurement here shows how much faster; {:.4g} GB/s is taken over from {}{}",
        what, fit.least_bandwidth, fit.nic_bandwidth, state.base.name, doubt));
  if (fit.bound == NicBound::line_rate)
    notes.push_back(
        fmt::format("nic_gb_per_s: the fit is bound by the line rate of {}'s NIC, {:g} GB/s{}",
                    state.base.name, line_rate, doubt));
  if (!fit.shows_latency)
    notes.push_back(
        fmt::format("nic_latency_ns: no message is small enough to show it; {} ns are "
                    "taken over from {}",
                    fit.nic_latency.value, state.base.name));
}

/// Origin of a NIC's fitted bandwidth.
std::string source_of_bandwidth(const CalibrationState& state, const NetworkFit& fit,
                                const std::string& fitted) {
  if (const std::string_view what = bound_of_test(fit); !what.empty())
    return fmt::format("taken over from {}: bound by {}, the NIC is at least {:.4g} GB/s",
                       state.base.name, what, fit.least_bandwidth);
  return fit.bound == NicBound::line_rate
             ? fmt::format("{}, bound by the line rate of {}", fitted, state.base.name)
             : fitted;
}

struct NetworkSources {
  std::string machine;
  std::string bandwidth;
  std::string latency;
};

/// Writes the fitted network into the GPU file too, so that the GPU file alone prices the measured
/// machine. Its node is a domain of the fast link.
void carry_network(CalibrationState& state, const Cluster& cluster, BytesPerNano line_rate,
                   const NetworkSources& sources) {
  Gpu& gpu = state.gpu;
  const std::string base = "taken over from " + state.base.name;
  gpu.domain = state.domain;
  gpu.gpus_per_node = std::min(state.gpus_per_node, state.domain);
  gpu.nics_per_node =
      std::max<std::int64_t>(1, cluster.nics_per_node * gpu.gpus_per_node / cluster.gpus_per_node);
  gpu.nic_bandwidth = cluster.network_bandwidth() * static_cast<double>(gpu.gpus_per_node) /
                      static_cast<double>(gpu.nics_per_node);
  gpu.nic_line_rate = line_rate * gpu.nic_bandwidth / cluster.nic_bandwidth;
  gpu.nic_latency = cluster.nic_latency;
  set_source(gpu, "node.nic_gb_per_s", sources.bandwidth);
  set_source(gpu, "node.nic_line_gb_per_s", "the line rate, which no fit passes: " + base);
  set_source(gpu, "node.nic_latency_ns", sources.latency);
  for (const char* key : {"node.gpus", "node.nics", "link.domain"})
    set_source(gpu, key, "the machine of the measurements: " + sources.machine);
}

Result<void> add_between(CalibrationState& state) {
  if (state.between.empty()) return {};
  const auto most = std::ranges::max(state.between, {}, &CollectiveSample::ranks).ranks;
  MFSDP_LET(cluster, cluster_of(state, state.gpu, most));
  const BytesPerNano line_rate = state.base.nic_line_rate.value_or(cluster.nic_bandwidth);
  const NetworkFit fit = fit_network(state.between, state.tables.collective, cluster, line_rate);
  const std::string files = names_of(state.data.collective_files);
  const std::string source =
      fmt::format("fitted: {} collectives of {}", state.between.size(), files);
  const std::string bandwidth = source_of_bandwidth(state, fit, source);
  const std::string latency =
      fit.shows_latency ? source
                        : fmt::format("taken over from {}: no message shows it", state.base.name);
  state.result.values.push_back({.key = "nic_gb_per_s",
                                 .value = fit.nic_bandwidth,
                                 .base = cluster.nic_bandwidth,
                                 .source = bandwidth});
  state.result.values.push_back({.key = "nic_latency_ns",
                                 .value = static_cast<double>(fit.nic_latency.value),
                                 .base = static_cast<double>(cluster.nic_latency.value),
                                 .source = latency});
  const std::int64_t largest =
      std::ranges::max(state.between, {}, &CollectiveSample::bytes).bytes.value;
  std::array<std::vector<double>, 2> alone;
  for (std::size_t i = 0; i < state.between.size(); ++i)
    alone[state.between[i].bytes.value >= largest / kLargeMessages ? 1 : 0].push_back(
        fit.errors[i]);
  note_errors(state, "network", "large messages, the two parameters alone", alone[1],
              Evaluation::fit, files);
  note_errors(state, "network", "smaller ones, the two parameters alone", alone[0], Evaluation::fit,
              files);
  note_errors(state, "network", "all, with the others' ratios", fit.left_out,
              Evaluation::leave_one_out, files);
  note_network(state, fit, line_rate);
  cluster.nic_bandwidth = fit.nic_bandwidth;
  cluster.nic_latency = fit.nic_latency;
  carry_network(state, cluster, line_rate,
                {.machine = source, .bandwidth = bandwidth, .latency = latency});
  state.gpu.tables.network = state.file_name("_network.csv");
  state.result.network = true;
  set_source(state.gpu, "tables.network", source);
  state.tables.network = state.between;
  state.result.files.push_back({state.beside("_network.csv"), network_csv(state.between)});
  state.result.files.push_back(
      {state.beside("_cluster.toml"),
       cluster_toml(cluster, state.request.output.filename().string(), source)});
  return {};
}

}  // namespace

Result<void> add_collectives(CalibrationState& state) {
  MFSDP_TRY(place_collectives(state));
  MFSDP_TRY(add_inside(state));
  return add_between(state);
}

Result<void> check_prices(CalibrationState& state) {
  if (state.data.collectives.empty()) return {};
  Gpu gpu = state.gpu;
  const auto most = std::ranges::max(state.data.collectives, {}, &CollectiveSample::ranks).ranks;
  MFSDP_LET(cluster, cluster_of(state, gpu, std::max(most, state.domain)));
  const CostModel costs(cluster, state.tables);
  constexpr double kReproduced = 0.03;
  std::vector<double> errors;
  std::size_t off = 0;
  for (const CollectiveSample& sample : state.data.collectives) {
    const CollectiveCost cost =
        costs.collective(sample.kind, sample.bytes, {.ranks = sample.ranks});
    errors.push_back(static_cast<double>(cost.duration.value) / sample.ns - 1);
    if (std::abs(errors.back()) > kReproduced) ++off;
  }
  note_errors(state, "collective", "all, priced with the written files", errors, Evaluation::fit,
              names_of(state.data.collective_files));
  if (off > 0)
    state.result.notes.push_back(fmt::format(
        "{} of {} collectives are priced more than 3 % off: they took longer than larger ones, or "
        "differ between runs",
        off, errors.size()));
  return {};
}

}  // namespace mfsdp
