// Expected error of a predicted step, with its reasons.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/record/result.hpp"
#include "sim/calibrate/anchor.hpp"
#include "sim/calibrate/own_error.hpp"
#include "sim/calibrate/trust_level.hpp"
#include "sim/cost/cost_model.hpp"

namespace mfsdp {

/// Expected relative errors of the parts of a step, as fractions.
struct PriceErrors {
  double kernel = 0;      ///< leave-one-out of GEMMs or attention, whichever is larger
  double collective = 0;  ///< leave-one-out of the collective table from 1 MiB on
  double contention = 0;  ///< of what collectives take from kernels
  double network = 0;     ///< leave-one-out between domains from 1 MiB on; 0: not measured
};

/// From the model's tables, by the functions that --fidelity prints. kernel_error takes about a
/// millisecond and does not depend on the number of GPUs: call it once for each kind.
[[nodiscard]] double kernel_error(const CostTables& tables, const Gpu& gpu);
[[nodiscard]] PriceErrors price_errors(const CostTables& tables, const Cluster& cluster,
                                       double kernel_error);

struct Trust {
  TrustLevel trust_level = TrustLevel::datasheet;
  /// Fraction of the step, in either direction; none if unknown.
  std::optional<double> expected_step_error = {};
  std::string text = {};    ///< tier, error and where the error is from: one line
  std::string calibration;  ///< the result's word: "measured", "datasheet" or "anchored"
};

/// Memory has no tier: one line for every result.
[[nodiscard]] std::string_view memory_trust_text();

/// Error of our predictions in runs of the same kind.
struct StepEvidence {
  PredictionKind kind;
  std::optional<OwnError> error;  ///< none: no such run was measured
  /// Kinds of the step's kernels that were not measured on its GPU (CostModel::unmeasured).
  std::vector<std::string> unmeasured = {};
};

/// The tier of a step on that model's cluster:
///   anchored    `anchor` is given; the expected error is the anchor's remaining error of its own
///               step, plus compute, contention and exposed communication, each times its own
///               error, over the step
///   calibrated  GEMMs, attention and collectives were measured on this GPU, and on a cluster with
///               several domains also all-gather and reduce-scatter between them
///   datasheet   otherwise
/// Without an anchor, the expected error is that of our own predictions in runs with the same
/// engine, family class, training and GPU. All of these ran inside one domain; on several domains
/// the error is not known. If the parts were measured and no run was, the text states the error of
/// the parts, or the kinds of kernels that were not measured: then that error is not known either.
/// On several domains, all exposed communication has the larger one of the errors of collectives
/// and network.
/// An anchor replaces measurements of kernels; of collectives, if its own step waited for some; and
/// of the network, up to the number of domains on which it ran. The text states what is missing.
[[nodiscard]] Trust trust_of(const CostModel& costs, const PriceErrors& errors,
                             const TimeSummary& time, const StepEvidence& evidence,
                             const std::optional<Anchor>& anchor = std::nullopt);

}  // namespace mfsdp
