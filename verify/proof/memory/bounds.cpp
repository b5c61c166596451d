#include "verify/proof/memory/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace mfsdp {
namespace {

/// A buffer begins or ends to be live, at a position of the chain that acquired it.
struct Change {
  std::uint32_t position = 0;
  std::uint32_t buffer = 0;
};

/// The buffers of one pool that one chain acquires; begins ascend.
struct Changes {
  std::vector<Change> begins;
  std::vector<Change> ends;
};

/// Instances of each chain, in its order.
using ChainLists = std::vector<std::vector<std::uint32_t>>;

/// Position of the first instance of `chain` that follows `release`.
std::uint32_t known_at(const UnrolledPlan& unrolled, const ChainLists& lists, std::uint32_t chain,
                       std::uint32_t release) {
  const Instance& instance = unrolled.instances[release];
  if (instance.chain == chain) return instance.position + 1;
  const auto found = std::ranges::partition_point(
      lists[chain], [&](std::uint32_t i) { return !unrolled.before(release, i); });
  return found == lists[chain].end() ? std::numeric_limits<std::uint32_t>::max()
                                     : unrolled.instances[*found].position;
}

/// By pool and acquiring chain.
std::vector<Changes> find_changes(const UnrolledPlan& unrolled) {
  const Program& program = *unrolled.program;
  ChainLists lists(unrolled.chains);
  for (std::uint32_t i = 0; i < unrolled.instances.size(); ++i)
    lists[unrolled.instances[i].chain].push_back(i);
  std::vector<std::uint32_t> open(program.buffers.size(), kNone);
  std::vector<Changes> changes(program.pools.size() * unrolled.chains);
  const auto changes_of = [&](std::uint32_t buffer, std::uint32_t chain) -> Changes& {
    const std::size_t pool = unrolled.index->pools[program.buffers[buffer].pool];
    return changes[pool * unrolled.chains + chain];
  };
  for (std::uint32_t i = 0; i < unrolled.instances.size(); ++i) {
    const auto [kind, chain, buffer, unit] = unrolled.facts(i);
    if (kind == OpKind::acquire && open[buffer] == kNone) {
      open[buffer] = i;
      changes_of(buffer, chain)
          .begins.push_back({.position = unrolled.instances[i].position, .buffer = buffer});
    } else if (kind == OpKind::release && open[buffer] != kNone) {
      const std::uint32_t acquirer = unrolled.instances[open[buffer]].chain;
      changes_of(buffer, acquirer)
          .ends.push_back({.position = known_at(unrolled, lists, acquirer, i), .buffer = buffer});
      open[buffer] = kNone;
    }
  }
  return changes;
}

bool is_of_casts(const Buffer& buffer) {
  return buffer.holds && buffer.holds->kind == ContentKind::cast_parameter;
}

/// The most of each measure that the changes have live; ends are sorted on the way.
PoolPeak peak_of(const Program& program, const Pool& pool, Changes& changes) {
  if (!std::ranges::is_sorted(changes.ends, {}, &Change::position))
    std::ranges::sort(changes.ends, {}, &Change::position);
  PoolPeak live;
  PoolPeak most;
  std::int64_t casts = 0;           // of a unit's weights to FP8, beside its other weights
  std::map<UnitId, int> gradients;  // buffers: a unit's groups have one each, and are one gradient
  const auto count = [&](const Change& change, std::int64_t sign) {
    const Buffer& buffer = program.buffers[change.buffer];
    live.bytes += buffer.size * sign;
    live.aligned += Bytes(round_up(buffer.size.value, pool.alignment)) * sign;
    if (buffer.category == Category::unsharded_weight)
      (is_of_casts(buffer) ? casts : live.weights) += sign;
    if (buffer.category != Category::unsharded_grad) return;
    if (!buffer.unit) {
      live.gradients += sign;
      return;
    }
    int& of_unit = gradients[*buffer.unit];
    if (of_unit == 0) ++live.gradients;
    of_unit += static_cast<int>(sign);
    if (of_unit == 0) --live.gradients;
  };
  auto end = changes.ends.begin();
  for (const Change& begin : changes.begins) {
    // At one position ends come first: that op knows of the release.
    for (; end != changes.ends.end() && end->position <= begin.position; ++end) count(*end, -1);
    count(begin, 1);
    most.bytes = std::max(most.bytes, live.bytes);
    most.aligned = std::max(most.aligned, live.aligned);
    most.weights = std::max({most.weights, live.weights, casts});
    most.gradients = std::max(most.gradients, live.gradients);
  }
  return most;
}

void add(PoolPeak& sum, const PoolPeak& other) {
  sum.bytes += other.bytes;
  sum.aligned += other.aligned;
  sum.weights += other.weights;
  sum.gradients += other.gradients;
}

/// " with 3 blocks that stay gathered", or nothing.
std::string kept_beside(const PlanConfig& config) {
  if (config.keep_gathered == 0) return "";
  return fmt::format(" and {} blocks that stay gathered", config.keep_gathered);
}

/// Live buffers against the limit that the configuration states.
void check_limits(const Program& program, const std::vector<std::vector<PoolPeak>>& peaks,
                  FindingList& findings) {
  for (std::size_t p = 0; p < peaks.size(); ++p) {
    PoolPeak sum;
    for (const PoolPeak& peak : peaks[p]) add(sum, peak);
    const PlanConfig& config = program.config;
    if (sum.weights - 1 - config.keep_gathered > config.prefetch)
      findings.add(finding_without_ops(
          "MF601", fmt::format("plan '{}' has up to {} gathered units live at once; a "
                               "prefetch of {}{} allows {}",
                               program.plans[p].name, sum.weights, config.prefetch,
                               kept_beside(config), config.prefetch + 1 + config.keep_gathered)));
    // Tied weights keep a gradient from the head to the embedding, in addition to those of blocks.
    const std::int64_t slots = config.grad_slots + (config.model.tied_embeddings ? 1 : 0);
    if (sum.gradients > slots)
      findings.add(finding_without_ops(
          "MF602", fmt::format("plan '{}' has up to {} full gradients in memory at "
                               "once; there are {} slots (tied weights add one)",
                               program.plans[p].name, sum.gradients, slots)));
  }
}

}  // namespace

std::vector<PoolPeak> pool_peaks(const UnrolledPlan& unrolled) {
  std::vector<Changes> changes = find_changes(unrolled);
  std::vector<PoolPeak> peaks(unrolled.program->pools.size());
  for (std::size_t p = 0; p < peaks.size(); ++p)
    for (std::size_t c = 0; c < unrolled.chains; ++c)
      add(peaks[p],
          peak_of(*unrolled.program, unrolled.program->pools[p], changes[p * unrolled.chains + c]));
  return peaks;
}

Bounds bounds_of(const Program& program, const ProgramIndex& index,
                 const std::vector<std::vector<PoolPeak>>& peaks, FindingList& findings) {
  check_limits(program, peaks, findings);
  Bounds bounds;
  std::vector<PoolPeak> persistent(program.pools.size());
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.persistent) continue;
    const std::size_t p = index.pools[buffer.pool];
    persistent[p].bytes += buffer.size;
    persistent[p].aligned += Bytes(round_up(buffer.size.value, program.pools[p].alignment));
  }
  for (std::size_t p = 0; p < program.pools.size(); ++p) {
    const Pool& pool = program.pools[p];
    Bytes transient;  // of the plan that needs most
    for (std::size_t plan = 0; plan < peaks.size(); ++plan) {
      transient = std::max(transient, peaks[plan][p].aligned);
      if (program.plans[plan].role() != PlanRole::train) continue;
      bounds.live_full_weights += peaks[plan][p].weights;
      bounds.live_full_gradients += peaks[plan][p].gradients;
      if (pool.space == MemorySpace::device) bounds.peak += peaks[plan][p].bytes;
    }
    if (pool.space == MemorySpace::device) bounds.peak += persistent[p].bytes;
    const Bytes bound = persistent[p].aligned + transient;
    bounds.pools.push_back({.name = pool.name, .height = pool.height, .lower_bound = bound});
    if (bound != pool.lower_bound)
      findings.add(finding_without_ops(
          "MF603", fmt::format("pool '{}' states a lower bound of {} bytes, but its "
                               "plans have up to {} bytes live",
                               pool.name, pool.lower_bound.value, bound.value)));
  }
  return bounds;
}

}  // namespace mfsdp
