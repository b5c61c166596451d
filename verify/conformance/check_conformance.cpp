#include <fmt/format.h>

#include <algorithm>

#include "verify/conformance/checked_run.hpp"
#include "verify/findings/place_names.hpp"

namespace mfsdp {
namespace {

/// Instances of all ranks and steps; each takes up to a hundred bytes.
constexpr Int128 kMostInstances = 5'000'000;

/// The ranks' parts of the list.
std::vector<std::span<const OpLaunch>> split_by_rank(std::span<const OpLaunch> launches) {
  std::vector<std::span<const OpLaunch>> parts;
  while (!launches.empty()) {
    const auto end = std::ranges::find_if(
        launches, [&](const OpLaunch& l) { return l.rank != launches.front().rank; });
    parts.push_back(launches.first(static_cast<std::size_t>(end - launches.begin())));
    launches = launches.subspan(parts.back().size());
  }
  return parts;
}

Result<void> check_ranks(const Program& program,
                         const std::vector<std::span<const OpLaunch>>& parts) {
  const std::int64_t world = program.config.mesh.world_size();
  std::vector<std::int64_t> ranks;
  for (const auto& part : parts) ranks.push_back(part.front().rank);
  std::ranges::sort(ranks);
  if (const auto twice = std::ranges::adjacent_find(ranks); twice != ranks.end())
    return fail("launches", fmt::format("those of rank {} are not consecutive", *twice));
  if (ranks.front() < 0 || ranks.back() >= world)
    return fail("launches", fmt::format("expected ranks 0 to {}, found {}", world - 1,
                                        ranks.front() < 0 ? ranks.front() : ranks.back()));
  return {};
}

Result<void> check_size(const Plan& plan, std::size_t steps, std::size_t ranks) {
  Int128 instances = 0;
  for (const Segment& segment : plan.segments)
    instances += Int128{std::ssize(segment.ops)} * segment.repeat;
  if (instances * static_cast<Int128>(steps) * static_cast<Int128>(ranks) > kMostInstances)
    return fail(fmt::format("plan '{}'", plan.name),
                fmt::format("expected at most {} ops in {} steps on {} ranks",
                            static_cast<std::int64_t>(kMostInstances), steps, ranks));
  return {};
}

std::vector<std::int64_t> steps_of(std::span<const OpLaunch> launches) {
  std::vector<std::int64_t> steps;
  for (const OpLaunch& launch : launches)
    if (steps.empty() || steps.back() != launch.step) steps.push_back(launch.step);
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

}  // namespace

bool holds(CheckedRun& run, const Edge& edge) {
  ++run.result.edges;
  const Nanos slack = edge.came - edge.over;
  if (!edge.abuts && (!run.result.closest || slack < run.result.closest->slack))
    run.result.closest = ClosestPair{.slack = slack,
                                     .rank = edge.rank,
                                     .first = run.place(edge.first),
                                     .then = run.place(edge.then)};
  return slack + run.settings.resolution >= Nanos(0);
}

std::string where(std::int64_t rank, const Place& place) {
  return fmt::format("rank {}, {}, {}", rank, step_name(place.step),
                     repetition_name(place.segment, place.repetition));
}

Result<Conformance> check_conformance(const Program& program, const Plan& plan,
                                      std::span<const OpLaunch> launches,
                                      const ConformanceSettings& settings) {
  if (launches.empty()) return fail("launches", "expected at least one");
  const auto parts = split_by_rank(launches);
  MFSDP_TRY(check_ranks(program, parts));
  std::vector<std::int64_t> steps = steps_of(launches);
  MFSDP_TRY(check_size(plan, steps.size(), parts.size()));
  CheckedRun run(program, plan, settings);
  run.steps = std::move(steps);
  std::vector<RankRecord> records;
  for (const auto& part : parts) {
    records.push_back(match_launches(run, part));
    check_order(run, records.back());
  }
  check_meetings(run, records);
  run.result.ranks = std::ssize(parts);
  run.result.steps = std::ssize(run.steps);
  run.result.launches = std::ssize(launches);
  run.result.findings = run.findings.take();
  std::ranges::stable_sort(run.result.findings, {}, &Finding::rule);
  return std::move(run.result);
}

std::string render_summary(const Conformance& conformance) {
  std::string text = fmt::format(
      "{} launches of {} ranks in {} steps; {} orderings compared with the measured times\n",
      conformance.launches, conformance.ranks, conformance.steps, conformance.edges);
  if (const auto& closest = conformance.closest)
    text += fmt::format("closest: rank {}, {}: {} ns from {} to {}\n", closest->rank,
                        step_name(closest->then.step), closest->slack.value,
                        to_text(closest->first), to_text(closest->then));
  return text;
}

}  // namespace mfsdp
