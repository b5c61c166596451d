// Errors of prices relative to measurements.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/plan/op.hpp"
#include "sim/cost/attention.hpp"
#include "sim/cost/tables.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

/// Summary of relative errors, predicted / measured - 1. All 0 without rows.
struct ErrorSummary {
  std::size_t rows = 0;
  double mean = 0;   ///< of absolute values
  double worst = 0;  ///< largest absolute value
  double bias = 0;   ///< mean with signs: above 0, predictions are too large
};

[[nodiscard]] ErrorSummary summarise(std::span<const double> errors);

/// How the predicted row relates to the data of the model.
enum class Evaluation {
  fit,            ///< the model was fitted with the row
  leave_one_out,  ///< fitted anew to all rows but this one
  unseen,         ///< no row of this kind was used
  comparison,     ///< not a model of ours, or not a measurement of what is modelled
};

constexpr auto value_names(Evaluation) {
  return name_array("fit", "leave-one-out", "unseen", "comparison");
}

/// Time errors of GEMM rows of one kind; `evaluation` is fit or leave_one_out.
[[nodiscard]] std::vector<double> gemm_errors(std::span<const GemmRow> rows, const Gpu& gpu,
                                              GemmKind kind, Evaluation evaluation);

/// The same for all kinds with fit_gemm_law alone, without the rows' deviations from it.
[[nodiscard]] std::vector<double> gemm_law_errors(std::span<const GemmRow> rows, const Gpu& gpu);

/// The same with one constant rate for each kind: the rate, of those of its rows, with the lowest
/// mean error.
[[nodiscard]] std::vector<double> constant_rate_errors(std::span<const GemmRow> rows,
                                                       GemmKind kind);

/// Time errors of attention rows of one direction. `losses` were fitted once, to all rows of the
/// H200's tables.
[[nodiscard]] std::vector<double> attention_errors(
    std::span<const AttentionRow> rows, const Gpu& gpu, bool backward, Evaluation evaluation,
    const AttentionLosses& losses = kLibraryAttention);

/// Sizes of a full buffer, `least` <= size < `below`.
struct ByteRange {
  double least = 0;
  double below = 1e300;
};

/// Time errors of collectives inside a domain for rows within `range`. leave_one_out removes the
/// row's size for all numbers of ranks, as a table must be a grid. It needs at least three sizes,
/// otherwise nothing is returned.
[[nodiscard]] std::vector<double> collective_errors(std::span<const CollectiveRow> rows,
                                                    const Cluster& cluster,
                                                    std::span<const CollectiveKind> kinds,
                                                    ByteRange range, Evaluation evaluation);

/// Time errors of collectives between domains, each priced with the ratios (network_ratios.hpp) of
/// all other sizes; repeated samples count as their mean. `rows`: the table inside a domain. The
/// cluster's NICs are not refitted, even if they were fitted to all samples.
[[nodiscard]] std::vector<double> network_errors(std::span<const CollectiveSample> samples,
                                                 std::span<const CollectiveRow> rows,
                                                 const Cluster& cluster,
                                                 std::span<const CollectiveKind> kinds,
                                                 ByteRange range);

}  // namespace mfsdp
