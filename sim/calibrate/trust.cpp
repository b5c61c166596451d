#include "sim/calibrate/trust.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "sim/calibrate/errors.hpp"

namespace mfsdp {
namespace {

/// Published, by others, of models without measurements of the machine's whole runs: vTrain, MICRO
/// 2024. Its kernels were measured, so a data sheet alone does not come nearer.
constexpr double kDatasheetOneNode = 0.084;
constexpr double kDatasheetNetwork = 0.147;
/// Contention is fitted on one row of h200_overlap.csv; other rows are to be within this.
constexpr double kContentionError = 0.1;

/// Parts that still rest on a data sheet, in words; empty where none does.
std::string unmeasured(const Gpu& gpu, bool network, bool network_measured) {
  std::vector<std::string_view> parts;
  if (!gpu.measured.gemm) parts.emplace_back("GEMM");
  if (!gpu.measured.attention) parts.emplace_back("attention");
  if (!gpu.measured.collective) parts.emplace_back("collectives");
  if (network && !network_measured) parts.emplace_back("network");
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

PriceErrors price_errors(const CostTables& tables, const Cluster& cluster) {
  constexpr double kTrusted = 1048576;
  constexpr std::array<CollectiveKind, 2> kSharded{CollectiveKind::all_gather,
                                                   CollectiveKind::reduce_scatter};
  std::vector<double> kernels;
  for (const GemmKind kind : {GemmKind::forward, GemmKind::dgrad, GemmKind::wgrad}) {
    const std::vector<double> errors =
        gemm_errors(tables.gemm, cluster.gpu, kind, Evaluation::leave_one_out);
    kernels.insert(kernels.end(), errors.begin(), errors.end());
  }
  Cluster node = cluster;
  node.gpus = node.domain;
  const std::vector<double> collectives = collective_errors(
      tables.collective, node, kSharded, {.least = kTrusted}, Evaluation::leave_one_out);
  return {.kernel = summarise(kernels).mean,
          .collective = summarise(collectives).mean,
          .contention = kContentionError};
}

std::string_view memory_trust_text() {
  return "memory: exact for mfsdp's executor, but for the runtime outside its pools";
}

Trust trust_of(const CostModel& costs, const PriceErrors& errors, const TimeSummary& time,
               const std::optional<Anchor>& anchor) {
  const Cluster& cluster = costs.cluster();
  const bool network = cluster.gpus > cluster.domain;
  const std::string missing = unmeasured(cluster.gpu, network, costs.network_measured());
  const double step = std::max(1.0, static_cast<double>(time.step.value));
  const double own = (static_cast<double>(time.compute.value) * errors.kernel +
                      static_cast<double>(time.contention.value) * errors.contention +
                      static_cast<double>(time.exposed_communication.value) * errors.collective) /
                     step;
  Trust trust{.tier = missing.empty() ? Tier::calibrated : Tier::datasheet,
              .expected_step_error = own,
              .text = {},
              .calibration = cluster.gpu.calibration};
  std::string_view how = "within about";
  std::string_view at_best;
  std::string because = "leave-one-out (--fidelity), no whole run";
  if (trust.tier == Tier::datasheet) {
    trust.expected_step_error = network ? kDatasheetNetwork : kDatasheetOneNode;
    how = "within";
    at_best = " at best";
    because = "not measured: " + missing;
  }
  if (anchor) {
    trust.tier = Tier::anchored;
    trust.calibration = "anchored";
    trust.expected_step_error = std::abs(anchor->after) + own;
    how = "within about";
    at_best = "";
    because = anchor->text();
  }
  trust.text = fmt::format("{}: step {} {:.1f} %{}; {}", tier_text(trust.tier), how,
                           100 * trust.expected_step_error, at_best, because);
  return trust;
}

}  // namespace mfsdp
