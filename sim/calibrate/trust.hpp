// How far a predicted step can be trusted, and why.
#pragma once

#include <optional>
#include <string>

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
  double network = 0;  ///< leave-one-out between domains from 1 MiB on; 0 where none was measured
};

/// From the tables that the model prices with, by the functions that --fidelity prints. The
/// kernels' takes about a millisecond and is the same on any number of GPUs: ask once for each
/// kind.
[[nodiscard]] double kernel_error(const CostTables& tables, const Gpu& gpu);
[[nodiscard]] PriceErrors price_errors(const CostTables& tables, const Cluster& cluster,
                                       double kernel_error);

struct Trust {
  TrustLevel trust_level = TrustLevel::datasheet;
  /// Fraction of the step, either way; none where it is not known.
  std::optional<double> expected_step_error;
  std::string text;         ///< tier, error and where the error is from: one line
  std::string calibration;  ///< the result's word: "measured", "datasheet" or "anchored"
};

/// Memory needs no tier: its line for every result.
[[nodiscard]] std::string_view memory_trust_text();

/// How far predictions of a kind were off in runs of that very kind.
struct StepEvidence {
  PredictionKind kind;
  std::optional<OwnError> error;  ///< none: no such run was measured
};

/// The tier of a step on that model's cluster:
///   anchored    `anchor` is given; expected: what the anchor leaves of its own step, and compute,
///               contention and exposed communication, each times its own error, over the step
///   calibrated  GEMMs, attention and collectives were measured on this GPU, and where the cluster
///               has several domains all-gather and reduce-scatter between them
///   datasheet   otherwise
/// Without an anchor the expected error is that of our own predictions in runs of the same engine,
/// family class, training and GPU, inside one domain as all of these were; else it is not known.
/// The error of the parts alone stands in the text where they were measured and no run was.
/// On several domains all exposed communication has the larger error of collectives and network.
/// An anchor stands for kernels, for collectives where its own step waited for some, and for the
/// network up to as many domains as it ran on; the text says what is missing.
[[nodiscard]] Trust trust_of(const CostModel& costs, const PriceErrors& errors,
                             const TimeSummary& time, const StepEvidence& evidence,
                             const std::optional<Anchor>& anchor = std::nullopt);

}  // namespace mfsdp
