#include "sim/calibrate/errors.hpp"

#include <algorithm>
#include <cmath>

#include "sim/cost/collective.hpp"
#include "sim/cost/gemm.hpp"
#include "sim/cost/network_ratios.hpp"

namespace mfsdp {
namespace {

template <class Row>
std::vector<Row> without(std::span<const Row> rows, std::size_t index) {
  std::vector<Row> others(rows.begin(), rows.end());
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(index));
  return others;
}

/// `error(rows to build from, row)` of each row that is `wanted`. A single wanted row is skipped,
/// because no other row could predict it.
template <class Row, class Wanted, class RowError>
std::vector<double> row_errors(std::span<const Row> rows, Evaluation evaluation, Wanted wanted,
                               RowError error) {
  std::vector<double> errors;
  if (evaluation == Evaluation::leave_one_out && std::ranges::count_if(rows, wanted) < 2)
    return errors;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!wanted(rows[i])) continue;
    errors.push_back(evaluation == Evaluation::leave_one_out
                         ? error(std::span<const Row>(without(rows, i)), rows[i])
                         : error(rows, rows[i]));
  }
  return errors;
}

double time_of(const CollectiveRow& row, CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return row.all_gather_ns;
    case CollectiveKind::reduce_scatter: return row.reduce_scatter_ns;
    case CollectiveKind::all_reduce: return row.all_reduce_ns;
    case CollectiveKind::all_to_all:
    case CollectiveKind::shift:
    case CollectiveKind::send:
    case CollectiveKind::recv: break;  // not measured
  }
  return 0;
}

void add_collective_errors(const CollectiveModel& model, const CollectiveRow& row,
                           std::span<const CollectiveKind> kinds, std::vector<double>& errors) {
  for (const CollectiveKind kind : kinds) {
    const CollectiveCost cost = model.cost(kind, Bytes(static_cast<std::int64_t>(row.bytes)),
                                           {.ranks = static_cast<std::int64_t>(row.ranks)});
    errors.push_back(static_cast<double>(cost.duration.value) / time_of(row, kind) - 1);
  }
}

}  // namespace

ErrorSummary summarise(std::span<const double> errors) {
  ErrorSummary summary{.rows = errors.size()};
  if (errors.empty()) return summary;
  for (const double error : errors) {
    summary.mean += std::abs(error);
    summary.bias += error;
    summary.worst = std::max(summary.worst, std::abs(error));
  }
  summary.mean /= static_cast<double>(errors.size());
  summary.bias /= static_cast<double>(errors.size());
  return summary;
}

std::vector<double> gemm_errors(std::span<const GemmRow> rows, const Gpu& gpu, GemmKind kind,
                                Evaluation evaluation) {
  const GemmCost whole(rows, gpu);
  return row_errors(
      rows, evaluation, [&](const GemmRow& row) { return row.kind == kind; },
      [&](std::span<const GemmRow> from, const GemmRow& row) {
        const GemmShape shape = shape_of(row);
        const double measured = 2 * row.m * row.n * row.k / row.flops_per_ns;
        const double predicted = from.size() == rows.size()
                                     ? whole.nanoseconds(shape, false)
                                     : GemmCost(from, gpu).nanoseconds(shape, false);
        return predicted / measured - 1;
      });
}

std::vector<double> gemm_law_errors(std::span<const GemmRow> rows, const Gpu& gpu) {
  const auto sms = static_cast<double>(gpu.table_sms);
  const GemmLaw law = fit_gemm_law(rows, sms);
  std::vector<double> errors;
  for (const GemmRow& row : rows)
    errors.push_back(law.ns_per_flop(shape_of(row), sms) * row.flops_per_ns - 1);
  return errors;
}

std::vector<double> constant_rate_errors(std::span<const GemmRow> rows, GemmKind kind) {
  std::vector<double> best;
  for (const GemmRow& constant : rows) {
    if (constant.kind != kind) continue;
    std::vector<double> errors;
    for (const GemmRow& row : rows)
      if (row.kind == kind) errors.push_back(row.flops_per_ns / constant.flops_per_ns - 1);
    if (best.empty() || summarise(errors).mean < summarise(best).mean) best = std::move(errors);
  }
  return best;
}

std::vector<double> attention_errors(std::span<const AttentionRow> rows, const Gpu& gpu,
                                     bool backward, Evaluation evaluation,
                                     const AttentionLosses& losses) {
  const AttentionCost whole(rows, gpu, losses);
  return row_errors(
      rows, evaluation, [&](const AttentionRow& row) { return row.backward == backward; },
      [&](std::span<const AttentionRow> from, const AttentionRow& row) {
        const AttentionShape shape{.batch = static_cast<std::int64_t>(row.batch),
                                   .seq = static_cast<std::int64_t>(row.seq),
                                   .heads = static_cast<std::int64_t>(row.heads),
                                   .head_dim = static_cast<std::int64_t>(row.head_dim),
                                   .backward = row.backward};
        const double predicted = from.size() == rows.size()
                                     ? whole.nanoseconds(shape)
                                     : AttentionCost(from, gpu, losses).nanoseconds(shape);
        return predicted / row.ns - 1;
      });
}

std::vector<double> collective_errors(std::span<const CollectiveRow> rows, const Cluster& cluster,
                                      std::span<const CollectiveKind> kinds, ByteRange range,
                                      Evaluation evaluation) {
  std::vector<double> errors;
  const auto first =
      static_cast<std::size_t>(std::ranges::count(rows, rows.front().ranks, &CollectiveRow::ranks));
  if (evaluation == Evaluation::leave_one_out && first < 3) return errors;
  for (std::size_t size = 0; size < first; ++size) {
    const double bytes = rows[size].bytes;
    if (bytes < range.least || bytes >= range.below) continue;
    std::vector<CollectiveRow> from(rows.begin(), rows.end());
    if (evaluation == Evaluation::leave_one_out)
      std::erase_if(from, [&](const CollectiveRow& row) { return row.bytes == bytes; });
    const CollectiveModel model(from, cluster);
    for (const CollectiveRow& row : rows)
      if (row.bytes == bytes) add_collective_errors(model, row, kinds, errors);
  }
  return errors;
}

std::vector<double> network_errors(std::span<const CollectiveSample> samples,
                                   std::span<const CollectiveRow> rows, const Cluster& cluster,
                                   std::span<const CollectiveKind> kinds, ByteRange range) {
  const std::vector<CollectiveSample> all = mean_of_repeats(samples);
  const CollectiveModel model(rows, cluster);
  std::vector<double> errors;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const CollectiveSample& sample = all[i];
    const auto bytes = static_cast<double>(sample.bytes.value);
    const bool between = sample.ranks > cluster.domain && sample.ranks % cluster.domain == 0;
    if (!between || bytes < range.least || bytes >= range.below) continue;
    if (std::ranges::find(kinds, sample.kind) == kinds.end()) continue;
    const CommunicatorShape shape{.ranks = sample.ranks};
    const NetworkRatios ratios(without(std::span<const CollectiveSample>(all), i), model, cluster);
    const CollectiveCost cost = model.cost(sample.kind, sample.bytes, shape);
    errors.push_back(static_cast<double>(cost.duration.value) *
                         ratios.at(sample.kind, bytes, shape) / sample.ns -
                     1);
  }
  return errors;
}

}  // namespace mfsdp
