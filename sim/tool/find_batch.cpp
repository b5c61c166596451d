#include "sim/tool/find_batch.hpp"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <set>
#include <thread>

#include "core/base/quantity.hpp"
#include "core/cli/format.hpp"
#include "sim/search/parallel.hpp"

namespace mfsdp {
namespace {

using Values = std::set<std::int64_t, std::greater<>>;  // the largest first

/// The least common multiple, unless it leaves a range that anybody would train with.
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

/// Whether a row of that micro-batch fits with one microbatch.
bool any_fits(const std::vector<SweepRow>& rows, std::int64_t micro_batch, const Session& session) {
  std::vector<const Question*> questions;
  for (const SweepRow& row : rows)
    if (row.question && row.question->config.micro_batch == micro_batch)
      questions.push_back(&*row.question);
  bool found = false;
  run_in_parallel(
      questions.size(), std::thread::hardware_concurrency(),
      [&](std::size_t i) {
        const Question& question = *questions[i];
        if (cannot_fit(question)) return false;
        const auto ready = built(question);
        return ready && fits(*ready);
      },
      [&](std::size_t, bool fits) {
        found = found || fits;
        return !found && !session.interrupted;
      });
  return found;
}

void hold(SweepRow& row, std::int64_t sequences) {
  PlanConfig& config = row.question->config;
  const std::int64_t on_each = sequences / config.mesh.world_size();
  if (on_each % config.micro_batch == 0) {
    config.microbatches = on_each / config.micro_batch;
    if (const auto valid = validate(config); !valid) row.impossible = valid.error();
  } else if (cannot_fit(*row.question)) {
    row.too_large = true;
  } else {
    row.impossible = Error{.where = "--micro-batch",
                           .what = fmt::format("{} does not divide the {} sequences that each GPU "
                                               "has of the global batch of {} (--global-batch)",
                                               config.micro_batch, on_each, sequences)};
  }
  if (row.impossible) row.question.reset();
}

}  // namespace

std::optional<HeldBatch> hold_global_batch(std::vector<SweepRow>& rows, const SimOptions& options,
                                           const Session& session) {
  if (contains(options.given, "--global-batch")) return std::nullopt;
  const bool named = contains(options.given, "--micro-batch");
  Values sizes;
  Values worlds;
  for (const SweepRow& row : rows) {
    if (!row.question) continue;
    const PlanConfig& config = row.question->config;
    worlds.insert(config.mesh.world_size());
    if (named || config.micro_batch <= kMostSequencesHeld) sizes.insert(config.micro_batch);
  }
  const Values looked_at = sizes;
  while (!sizes.empty() && !session.interrupted && !any_fits(rows, *sizes.begin(), session))
    sizes.erase(sizes.begin());
  if (sizes.empty() || session.interrupted) return std::nullopt;

  const std::int64_t largest = *sizes.begin();
  const std::int64_t on_each = common_multiple(sizes);
  const std::int64_t sequences = checked_mul(on_each, common_multiple(worlds));
  for (SweepRow& row : rows) {
    if (!row.question) continue;
    const std::int64_t size = row.question->config.micro_batch;
    if (size > largest && looked_at.contains(size))
      row.too_large = true;
    else
      hold(row, sequences);
  }
  std::string share =
      fmt::format(": {} for each of {} GPUs", format_count(on_each), format_count(*worlds.begin()));
  if (on_each == largest && largest < *looked_at.begin())
    share += ", the largest micro-batch that fits";
  return HeldBatch{.sequences = sequences,
                   .text = fmt::format("Global batch {} sequences in every combination{}; "
                                       "--global-batch sets another.\n",
                                       format_count(sequences), worlds.size() == 1 ? share : "")};
}

}  // namespace mfsdp
