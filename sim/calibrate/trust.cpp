#include "sim/calibrate/trust.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "sim/calibrate/errors.hpp"

namespace mfsdp {
namespace {

/// Mean over the rows of h200_overlap.csv without those to which contention was fitted. The largest
/// error, of ag_symmetric_copy_engine, is 20.9 %. --fidelity prints all of them.
constexpr Evaluation kLeftOut = Evaluation::leave_one_out;
constexpr double kContentionError = 0.128;

std::int64_t domains_of(const Cluster& cluster) { return ceil_div(cluster.gpus, cluster.domain); }

/// Whether the anchor's step measures the cost of this step's collectives inside a domain.
bool stands_for_collectives(const std::optional<Anchor>& anchor, const TimeSummary& time) {
  if (!anchor) return false;
  return anchor->waited || (anchor->gpus > 1 && time.exposed_communication.value == 0);
}

/// Collectives that were not measured between domains, as text; empty if there are none.
std::string unmeasured_between(const CostModel& costs) {
  std::vector<std::string_view> parts;
  if (!costs.network_measures(CollectiveKind::all_gather)) parts.emplace_back("all-gather");
  if (!costs.network_measures(CollectiveKind::reduce_scatter)) parts.emplace_back("reduce-scatter");
  return fmt::format("{}", fmt::join(parts, " and "));
}

/// Parts that are priced from a data sheet, as text; empty if there are none.
std::string unmeasured(const CostModel& costs, const TimeSummary& time,
                       const std::optional<Anchor>& anchor) {
  const Cluster& cluster = costs.cluster();
  const MeasuredParts& measured = cluster.gpu.measured;
  const bool seen = stands_for_collectives(anchor, time);
  std::vector<std::string> parts;
  if (!measured.gemm && !anchor) parts.emplace_back("GEMM");
  if (!measured.attention && !anchor) parts.emplace_back("attention");
  if (!measured.collective && !seen && cluster.gpus > 1) parts.emplace_back("collectives");
  const std::string between = unmeasured_between(costs);
  const bool run_was_as_wide = seen && anchor->domains >= domains_of(cluster);
  if (domains_of(cluster) > 1 && !between.empty() && !run_was_as_wide) {
    // With other parts, the list of the network's collectives would not fit the line.
    const bool some = costs.network_measures(CollectiveKind::all_gather) ||
                      costs.network_measures(CollectiveKind::reduce_scatter) ||
                      costs.network_measures(CollectiveKind::all_reduce);
    parts.push_back(some && parts.empty() ? "network " + between : "network");
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Compute, contention and exposed communication, each times its error, divided by the step.
double error_of_parts(const PriceErrors& errors, const TimeSummary& time, bool network) {
  const double communication =
      network ? std::max(errors.collective, errors.network) : errors.collective;
  return (static_cast<double>(time.compute.value) * errors.kernel +
          static_cast<double>(time.contention.value) * errors.contention +
          static_cast<double>(time.exposed_communication.value) * communication) /
         std::max(1.0, static_cast<double>(time.step.value));
}

std::string anchored_text(double error, const std::string& missing, const Anchor& anchor) {
  if (missing.empty())
    return fmt::format(": expect the step to be off by about {:.1f} %; {}", 100 * error,
                       anchor.text());
  return fmt::format(": expect the step to be off by {:.1f} % or more; not measured: {}; run {}",
                     100 * error, missing, anchor.run);
}

/// The measured error of our predictions, if known; else that of the parts, if all were measured.
std::string evidence_text(const StepEvidence& evidence, double error_of_parts,
                          const std::string& missing, bool network) {
  std::string text = "; " + own_error_text(evidence.kind, evidence.error);
  if (evidence.error && network) text += ", none of them over a network";
  if (!evidence.unmeasured.empty())
    text += fmt::format("; not measured on {}: {}", evidence.kind.gpu,
                        fmt::join(evidence.unmeasured, ", "));
  else if (!evidence.error && missing.empty())
    text +=
        fmt::format("; of its parts, measured alone, {:.1f} % (--fidelity)", 100 * error_of_parts);
  return text;
}

}  // namespace

double kernel_error(const CostTables& tables, const Gpu& gpu) {
  std::vector<double> gemms;
  for (const GemmKind kind :
       {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
    const std::vector<double> errors = gemm_errors(tables.gemm, gpu, kind, kLeftOut);
    gemms.insert(gemms.end(), errors.begin(), errors.end());
  }
  std::vector<double> attention;
  for (const bool backward : {false, true}) {
    const std::vector<double> errors = attention_errors(tables.attention, gpu, backward, kLeftOut);
    attention.insert(attention.end(), errors.begin(), errors.end());
    if (tables.attention_warpgroups.empty()) continue;
    const std::vector<double> own =
        attention_errors(tables.attention_warpgroups, gpu, backward, kLeftOut, kWarpgroupAttention);
    attention.insert(attention.end(), own.begin(), own.end());
  }
  return std::max(summarise(gemms).mean, summarise(attention).mean);
}

PriceErrors price_errors(const CostTables& tables, const Cluster& cluster, double kernel_error) {
  constexpr ByteRange kTrusted{.least = 1048576};
  constexpr std::array<CollectiveKind, 2> kSharded{CollectiveKind::all_gather,
                                                   CollectiveKind::reduce_scatter};
  // The table's rows are of ranks in one domain, even if the cluster's domains are smaller.
  Cluster node = cluster;
  for (const CollectiveRow& row : tables.collective)
    node.domain = std::max(node.domain, static_cast<std::int64_t>(row.ranks));
  node.gpus = node.domain;
  const std::vector<double> collectives =
      collective_errors(tables.collective, node, kSharded, kTrusted, kLeftOut);
  const std::vector<double> network =
      network_errors(tables.network, tables.collective, cluster, kSharded, kTrusted);
  return {.kernel = kernel_error,
          .collective = summarise(collectives).mean,
          .contention = kContentionError,
          .network = summarise(network).mean};
}

std::string_view memory_trust_text() {
  return "memory: exact for mfsdp's executor, but for the runtime outside its pools";
}

Trust trust_of(const CostModel& costs, const PriceErrors& errors, const TimeSummary& time,
               const StepEvidence& evidence, const std::optional<Anchor>& anchor) {
  const Cluster& cluster = costs.cluster();
  const bool network = domains_of(cluster) > 1;
  const std::string missing = unmeasured(costs, time, anchor);
  const double of_parts = error_of_parts(errors, time, network);
  Trust trust{.trust_level = missing.empty() ? TrustLevel::calibrated : TrustLevel::datasheet,
              .calibration = cluster.gpu.calibration};
  if (anchor) {
    trust.trust_level = TrustLevel::anchored;
    trust.calibration = "anchored";
    trust.expected_step_error = of_parts + std::abs(anchor->after);
    trust.text = anchored_text(*trust.expected_step_error, missing, *anchor);
  } else {
    if (evidence.error && !network) trust.expected_step_error = evidence.error->mean;
    trust.text = evidence_text(evidence, of_parts, missing, network);
  }
  trust.text.insert(0, missing.empty() || anchor ? std::string(to_string(trust.trust_level))
                                                 : "priced by data sheet: " + missing);
  return trust;
}

}  // namespace mfsdp
