#include "sim/search/limit.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/plan/config_fields.hpp"
#include "core/request/plan_options.hpp"

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

/// Numbers of GPUs to try: powers of two in one node, then whole nodes.
std::vector<std::int64_t> gpu_counts(std::int64_t per_node, std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 1; n < per_node && n <= most; n *= 2) counts.push_back(n);
  for (std::int64_t n = per_node; n <= most; n += per_node) counts.push_back(n);
  return counts;
}

/// Numbers of GPUs above the fewest that fit which the search has not tried: padding to whole
/// shards can make more GPUs not fit.
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

Result<std::vector<std::int64_t>> gpu_counts(const JobOptions& job,
                                             const PredictionRequests& requests) {
  MFSDP_LET(per_node, requests.gpus_per_node(job));
  MFSDP_LET(most, requests.limit_of_gpus(job));
  return gpu_counts(per_node, most.value_or(kMostGpus));
}

RequestFor request_for(const JobOptions& job, FitLimit limit, PredictionRequests& requests) {
  return [&job, limit, &requests](std::int64_t value) {
    JobOptions one = job;
    apply(limit_setting(limit, value), one);
    return requests.read(one);
  };
}

Result<Found> search_limit(const JobOptions& job, FitLimit limit, PredictionRequests& requests,
                           const Watch& watch) {
  const RequestFor request = request_for(job, limit, requests);
  const CommonOptions& common = job.common;
  const unsigned threads = std::thread::hardware_concurrency();
  switch (limit) {
    case FitLimit::micro_batch:
      if (common.global_batch || common.batch_tokens) {
        MFSDP_LET(model, requests.shape(job));
        MFSDP_LET(batch, global_batch_of(common, seq_len_of(common, model)));
        const auto candidates = dividing(*batch, common.gpus);
        if (candidates.empty()) return find_largest(1, 1, 1, request, watch);  // for its error
        return find_among(candidates, Pick::last, threads, request, watch);
      }
      return find_largest(1, 1, config_limits::sequences, request, watch);
    case FitLimit::seq_len:
      return find_largest(kTokenStep, kTokenStep, config_limits::tokens, request, watch);
    case FitLimit::gpus: break;
  }
  MFSDP_LET(counts, gpu_counts(job, requests));
  return find_among(counts, Pick::first, threads, request, watch);
}

/// Adds the machine that the row's plans run on, and the run of the value found.
Result<void> complete_row(const JobOptions& job, FitLimit limit, PredictionRequests& requests,
                          LimitRow& row) {
  const auto valid =
      std::ranges::find_if(row.found.tried, [](const Tried& tried) { return !tried.invalid; });
  if (valid == row.found.tried.end()) return {};
  const std::int64_t shown = row.found.value.value_or(valid->value);
  MFSDP_LET(request, request_for(job, limit, requests)(shown));
  row.recompute = request.config.recompute;
  row.capacity = request.costs->cluster().gpu.capacity;
  row.reserve = request.reserve;
  if (!row.found.value) return {};
  MFSDP_LET(prediction, predict(request));
  row.run = std::move(prediction.run);
  return {};
}

Result<LimitRow> row_of(const Variant& variant, FitLimit limit, PredictionRequests& requests,
                        const Watch& watch) {
  LimitRow row;
  row.settings = variant.settings;
  if (limit == FitLimit::gpus) MFSDP_SET(row.gpus_per_node, requests.gpus_per_node(variant.job));
  MFSDP_SET(row.found, search_limit(variant.job, limit, requests, watch));
  MFSDP_TRY(complete_row(variant.job, limit, requests, row));
  return row;
}

/// Tries more GPUs than the fewest that fit, which the search has not tried.
Result<void> try_more_gpus(const JobOptions& job, PredictionRequests& requests, const Watch& watch,
                           Found& found) {
  MFSDP_LET(counts, gpu_counts(job, requests));
  try_all(counts_above(found, counts), std::thread::hardware_concurrency(),
          request_for(job, FitLimit::gpus, requests), watch, found);
  return {};
}

bool goes_as_far(const LimitRow& row, const LimitRow& before, FitLimit limit) {
  if (!before.found.value) return true;
  if (!row.found.value) return false;
  return limit == FitLimit::gpus ? *row.found.value <= *before.found.value
                                 : *row.found.value >= *before.found.value;
}

}  // namespace

Setting limit_setting(FitLimit limit, std::int64_t value) {
  switch (limit) {
    case FitLimit::micro_batch: return setting("--micro-batch", value);
    case FitLimit::seq_len: return setting("--seq-len", value);
    case FitLimit::gpus: break;
  }
  return setting("--gpus", value);
}

Result<std::vector<LimitRow>> find_limit(const JobOptions& job, FitLimit limit,
                                         PredictionRequests& requests, const Watch& watch) {
  bool stopped = false;
  const Watch watched = [&](const Tried& tried) {
    stopped = stopped || !watch(tried);
    return !stopped;
  };
  std::vector<LimitRow> rows;
  for (Variant variant : memory_variants(job)) {
    auto row = row_of(variant, limit, requests, watched);
    if (!row && rows.empty()) return tl::unexpected<Error>(row.error());
    while (!row && variant.settings.size() > 1) {  // not every model can have all of them
      variant.settings.pop_back();
      variant = with_new_settings(job, variant.settings);
      row = row_of(variant, limit, requests, watched);
    }
    const bool is_new = row && (rows.empty() || row->settings.size() > rows.back().settings.size());
    if (!is_new || stopped) continue;
    const bool is_first_to_fit = row->run && (rows.empty() || !rows.back().run);
    if (is_first_to_fit && limit == FitLimit::gpus)
      MFSDP_TRY(try_more_gpus(variant.job, requests, watched, row->found));
    if (rows.empty() || goes_as_far(*row, rows.back(), limit)) rows.push_back(*std::move(row));
  }
  return rows;
}

std::size_t answer_row(const std::vector<LimitRow>& rows) {
  const auto found =
      std::ranges::find_if(rows, [](const LimitRow& row) { return row.run.has_value(); });
  return found == rows.end() ? rows.size() - 1 : static_cast<std::size_t>(found - rows.begin());
}

}  // namespace mfsdp
