#include "sim/search/shared_batch.hpp"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <set>
#include <thread>

#include "core/base/quantity.hpp"
#include "sim/search/parallel.hpp"

namespace mfsdp {
namespace {

using Values = std::set<std::int64_t, std::greater<>>;  // the largest first

/// The least common multiple; the largest value if the multiple exceeds any realistic batch.
std::int64_t common_multiple(const Values& values) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::int64_t multiple = 1;
  for (const std::int64_t value : values) {
    const std::int64_t part = value / std::gcd(multiple, value);
    if (multiple > kMost / part) return *values.begin();
    multiple *= part;
  }
  return multiple;
}

/// Whether a candidate of that micro-batch fits with one microbatch.
bool any_fits(const std::vector<Candidate>& candidates, std::int64_t micro_batch,
              const SearchHooks& hooks) {
  std::vector<const PredictionRequest*> requests;
  for (const Candidate& candidate : candidates)
    if (candidate.request && candidate.request->config.micro_batch == micro_batch)
      requests.push_back(&*candidate.request);
  bool found = false;
  run_in_parallel(
      requests.size(), std::thread::hardware_concurrency(),
      [&](std::size_t i) {
        const PredictionRequest& request = *requests[i];
        if (cannot_fit(request)) return false;
        const auto ready = with_program(request);
        return ready && fits(*ready);
      },
      [&](std::size_t, bool fits) {
        found = found || fits;
        return !found && !hooks.stop();
      });
  return found;
}

void set_batch(Candidate& candidate, std::int64_t sequences) {
  PlanConfig& config = candidate.request->config;
  const std::int64_t per_gpu = sequences / data_ranks(config.mesh);
  if (per_gpu % config.micro_batch == 0) {
    config.microbatches = per_gpu / config.micro_batch;
    const MeshRules rules = mesh_rules(candidate.request->engine);
    if (const auto valid = validate(config, rules); !valid) candidate.invalid = valid.error();
  } else if (cannot_fit(*candidate.request)) {
    candidate.too_large = true;
  } else {
    candidate.invalid = Error{
        .where = "--micro-batch",
        .what = fmt::format("{} does not divide the {} sequences that each GPU has of the global "
                            "batch of {} (--global-batch)",
                            config.micro_batch, per_gpu, sequences)};
  }
  if (candidate.invalid) candidate.request.reset();
}

}  // namespace

std::optional<SharedBatch> share_batch(std::vector<Candidate>& candidates, const JobOptions& job,
                                       const SearchSpace& space, const SearchHooks& hooks) {
  if (!is_open(job, space, "--global-batch")) return std::nullopt;
  const SearchAxis* axis = space.find("--micro-batch");
  const bool is_set =
      contains(job.given, "--micro-batch") || (axis != nullptr && !axis->by_default);
  Values sizes;
  Values worlds;
  for (const Candidate& candidate : candidates) {
    if (!candidate.request) continue;
    const PlanConfig& config = candidate.request->config;
    worlds.insert(data_ranks(config.mesh));
    if (is_set || config.micro_batch <= kMostSharedSequences) sizes.insert(config.micro_batch);
  }
  const Values tried = sizes;
  while (!sizes.empty() && !hooks.stop() && !any_fits(candidates, *sizes.begin(), hooks))
    sizes.erase(sizes.begin());
  if (sizes.empty() || hooks.stop()) return std::nullopt;

  const std::int64_t largest = *sizes.begin();
  const std::int64_t per_gpu = common_multiple(sizes);
  const std::int64_t sequences = checked_mul(per_gpu, common_multiple(worlds));
  for (Candidate& candidate : candidates) {
    if (!candidate.request) continue;
    const std::int64_t size = candidate.request->config.micro_batch;
    if (size > largest && tried.contains(size))
      candidate.too_large = true;
    else
      set_batch(candidate, sequences);
  }
  return SharedBatch{.sequences = sequences,
                     .gpus = worlds.size() == 1 ? *worlds.begin() : 0,
                     .per_gpu = per_gpu,
                     .is_largest_that_fits = per_gpu == largest && largest < *tried.begin()};
}

}  // namespace mfsdp
