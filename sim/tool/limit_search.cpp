#include "sim/tool/limit_search.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/plan/config_fields.hpp"
#include "core/request/plan_options.hpp"
#include "sim/tool/savers.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kTokenStep = 256;    // sequence lengths are multiples of it
constexpr std::int64_t kMostGpus = 16'384;  // 2,048 nodes of 8, where --gpus sets no limit

/// Micro-batches that divide the global batch: few, and each has its own number of microbatches.
std::vector<std::int64_t> dividing(std::int64_t global_batch, std::int64_t gpus) {
  std::vector<std::int64_t> candidates;
  const std::int64_t per_gpu = global_batch / gpus;
  for (std::int64_t m = 1; m <= per_gpu / m; ++m) {
    if (per_gpu % m != 0) continue;
    candidates.push_back(m);
    if (m != per_gpu / m) candidates.push_back(per_gpu / m);
  }
  std::ranges::sort(candidates);
  std::erase_if(candidates, [](std::int64_t m) { return m > config_limits::sequences; });
  return candidates;
}

/// Numbers of GPUs worth asking for: powers of two in one node, then whole nodes.
std::vector<std::int64_t> gpu_counts(std::int64_t per_node, std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 1; n < per_node && n <= most; n *= 2) counts.push_back(n);
  for (std::int64_t n = per_node; n <= most; n += per_node) counts.push_back(n);
  return counts;
}

/// More GPUs than the fewest that fit, of which the search has not looked at: padding to whole
/// shards can make more of them not fit.
std::vector<std::int64_t> counts_above(const Found& found,
                                       const std::vector<std::int64_t>& counts) {
  constexpr std::int64_t kTimes = 4;
  constexpr std::size_t kMost = 64;
  std::vector<std::int64_t> above;
  if (!found.value) return above;
  for (const std::int64_t count : counts) {
    const bool seen = std::ranges::find(found.tried, count, &Tried::value) != found.tried.end();
    if (count > *found.value && count <= kTimes * *found.value && !seen && above.size() < kMost)
      above.push_back(count);
  }
  return above;
}

Result<std::vector<std::int64_t>> gpu_counts(const SimOptions& options, const Asker& asker) {
  MFSDP_LET(per_node, asker.gpus_per_node(options));
  MFSDP_LET(most, asker.limit_of_gpus(options));
  return gpu_counts(per_node, most.value_or(kMostGpus));
}

AskFor ask_with(const SimOptions& options, Asker& asker) {
  return [&](std::int64_t value) { return asker.question(with_value(options, value)); };
}

Result<Found> search(const SimOptions& options, Asker& asker, const Watch& watch) {
  const AskFor ask = ask_with(options, asker);
  const CommonOptions& common = options.common;
  const unsigned threads = std::thread::hardware_concurrency();
  switch (*options.find) {
    case Find::max_micro_batch:
      if (common.global_batch || common.batch_tokens) {
        MFSDP_LET(model, asker.shape(options));
        MFSDP_LET(batch, global_batch_of(common, seq_len_of(common, model)));
        const auto candidates = dividing(*batch, common.gpus);
        if (candidates.empty()) return find_largest(1, 1, 1, ask, watch);  // says what is wrong
        return find_among(candidates, Pick::last, threads, ask, watch);
      }
      return find_largest(1, 1, config_limits::sequences, ask, watch);
    case Find::max_seq_len:
      return find_largest(kTokenStep, kTokenStep, config_limits::tokens, ask, watch);
    default: {
      MFSDP_LET(counts, gpu_counts(options, asker));
      return find_among(counts, Pick::first, threads, ask, watch);
    }
  }
}

/// What the row's plans run on, and the run of the value found.
Result<void> complete_row(const SimOptions& options, Asker& asker, LimitRow& row) {
  const auto possible =
      std::ranges::find_if(row.found.tried, [](const Tried& tried) { return !tried.impossible; });
  if (possible == row.found.tried.end()) return {};
  const std::int64_t shown = row.found.value.value_or(possible->value);
  MFSDP_LET(question, asker.question(with_value(options, shown)));
  row.recompute = question.config.recompute;
  row.capacity = question.costs->cluster().gpu.capacity;
  row.reserve = question.reserve;
  if (!row.found.value) return {};
  MFSDP_LET(prediction, answer(question));
  row.run = std::move(prediction.run);
  return {};
}

Result<LimitRow> row_of(const Variant& variant, Asker& asker, const Watch& watch) {
  LimitRow row;
  row.flags = variant.flags;
  MFSDP_LET(found, search(variant.options, asker, watch));
  row.found = std::move(found);
  MFSDP_TRY(complete_row(variant.options, asker, row));
  return row;
}

/// Looks at more GPUs than the fewest that fit, of which the search has not.
Result<void> look_above(const SimOptions& options, Asker& asker, const Watch& watch, Found& found) {
  if (*options.find != Find::min_gpus) return {};
  MFSDP_LET(counts, gpu_counts(options, asker));
  const unsigned threads = std::thread::hardware_concurrency();
  look_at_all(counts_above(found, counts), threads, ask_with(options, asker), watch, found);
  return {};
}

bool goes_as_far(const LimitRow& row, const LimitRow& before, Find what) {
  if (!before.found.value) return true;
  if (!row.found.value) return false;
  return what == Find::min_gpus ? *row.found.value <= *before.found.value
                                : *row.found.value >= *before.found.value;
}

}  // namespace

SimOptions with_value(SimOptions options, std::int64_t value) {
  CommonOptions& common = options.common;
  switch (*options.find) {
    case Find::max_micro_batch: common.config.micro_batch = value; break;
    case Find::max_seq_len: common.seq_len = value; break;
    default: common.gpus = value; break;
  }
  return options;
}

Result<std::vector<LimitRow>> limit_rows(const SimOptions& options, Asker& asker,
                                         const Watch& watch) {
  bool stopped = false;
  const Watch watched = [&](const Tried& tried) {
    stopped = stopped || !watch(tried);
    return !stopped;
  };
  std::vector<LimitRow> rows;
  for (Variant variant : saving_variants(options)) {
    auto row = row_of(variant, asker, watched);
    if (!row && rows.empty()) return tl::unexpected<Error>(row.error());
    while (!row && variant.savers.size() > 1) {  // not every model can have all of them
      variant.savers.pop_back();
      variant = with_savers(options, variant.savers);
      row = row_of(variant, asker, watched);
    }
    const bool is_new = row && (rows.empty() || row->flags != rows.back().flags);
    if (!is_new || stopped) continue;
    const bool is_first_to_fit = row->run && (rows.empty() || !rows.back().run);
    if (is_first_to_fit) MFSDP_TRY(look_above(variant.options, asker, watched, row->found));
    if (rows.empty() || goes_as_far(*row, rows.back(), *options.find))
      rows.push_back(*std::move(row));
  }
  return rows;
}

std::size_t shown_row(const std::vector<LimitRow>& rows) {
  const auto found =
      std::ranges::find_if(rows, [](const LimitRow& r) { return r.run.has_value(); });
  return found == rows.end() ? rows.size() - 1 : static_cast<std::size_t>(found - rows.begin());
}

}  // namespace mfsdp
