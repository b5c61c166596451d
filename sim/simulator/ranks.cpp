#include "sim/simulator/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "core/plan/job.hpp"
#include "sim/simulator/prices.hpp"

namespace mfsdp {
namespace {

using Colours = std::vector<std::uint32_t>;  // by rank

std::size_t group_number(std::size_t rank, const Membership& membership) {
  return static_cast<std::size_t>(membership.of(static_cast<std::int64_t>(rank)));
}

/// The colours in each group of a communicator, ascending.
std::vector<Colours> colours_of_groups(const Colours& colours, const Membership& membership) {
  std::vector<Colours> groups(static_cast<std::size_t>(membership.count()));
  for (std::size_t rank = 0; rank < colours.size(); ++rank)
    groups[group_number(rank, membership)].push_back(colours[rank]);
  for (Colours& group : groups) {
    std::ranges::sort(group);
    const auto repeated = std::ranges::unique(group);
    group.erase(repeated.begin(), repeated.end());
  }
  return groups;
}

/// Numbers keys from 0 in the order of their first occurrence.
template <class Key>
std::uint32_t number_of(std::map<Key, std::uint32_t>& numbers, const Key& key) {
  return numbers.try_emplace(key, static_cast<std::uint32_t>(numbers.size())).first->second;
}

/// Splits each colour by the set of colours in its group; returns the number of colours.
std::size_t refine(Colours& colours, const Membership& membership) {
  std::map<Colours, std::uint32_t> sets;
  Colours set_of;  // by group number
  for (const Colours& group : colours_of_groups(colours, membership))
    set_of.push_back(number_of(sets, group));
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> refined;
  for (std::size_t rank = 0; rank < colours.size(); ++rank) {
    const std::size_t group = group_number(rank, membership);
    colours[rank] = number_of(refined, {colours[rank], set_of[group]});
  }
  return refined.size();
}

/// Splits the colours until ranks of one colour have groups of equal colours in all communicators,
/// and along the axes of peers. Ranks of a class with peers have one index on such an axis, so ranks
/// with equal sets of colours along it have equal peers.
void refine(Colours& colours, std::span<const ClassOfRanks> classes) {
  const Program& program = *classes.front().program;
  std::vector<Membership> memberships;
  for (const Communicator& communicator : program.communicators)
    memberships.emplace_back(communicator.axes, program.config.mesh);
  std::set<Axis> axes;
  for (const ClassOfRanks& one : classes)
    for (const PeerChannel& channel : one.channels) axes.insert(channel.peer.axis);
  for (const Axis axis : axes) memberships.emplace_back(std::vector{axis}, program.config.mesh);
  std::size_t before = 0;
  for (std::size_t count = 1; count != before;) {
    before = count;
    for (const Membership& membership : memberships) count = refine(colours, membership);
  }
}

/// `value`, at least 0, in units of 1 / kOne, rounded to nearest.
std::int64_t fixed_point(const Rational& value) {
  return checked_narrow((static_cast<Int128>(value.num) * kOne + value.den / 2) / value.den);
}

Result<std::vector<std::int64_t>> kernel_times(const RankVariation& variation, std::int64_t ranks) {
  std::vector<std::int64_t> times(static_cast<std::size_t>(ranks), kOne);
  std::vector<bool> seen(times.size());
  for (const SlowRank& slow : variation.slow) {
    if (slow.rank < 0 || slow.rank >= ranks)
      return fail("--slow-rank",
                  fmt::format("expected a rank from 0 to {}, got {}", ranks - 1, slow.rank));
    const auto rank = static_cast<std::size_t>(slow.rank);
    if (seen[rank]) return fail("--slow-rank", fmt::format("rank {} is given twice", slow.rank));
    seen[rank] = true;
    if (slow.factor.value() < 1e-3 || slow.factor.value() > 1e3)
      return fail("--slow-rank", fmt::format("expected a factor from 0.001 to 1000, got {}/{}",
                                             slow.factor.num, slow.factor.den));
    times[rank] = fixed_point(slow.factor);
  }
  return times;
}

/// One class with all ranks.
RankPartition one_class(const Program& program) {
  RankPartition partition;
  partition.ranks = program.config.mesh.world_size();
  partition.representatives = {{.rank = 0, .ranks = partition.ranks, .kernel_time = kOne}};
  partition.groups.assign(program.communicators.size(), {0});
  partition.group_of.emplace_back(program.communicators.size());
  std::iota(partition.group_of[0].begin(), partition.group_of[0].end(), 0);
  partition.channel_of.emplace_back();
  return partition;
}

/// Adds the communicator's groups, with the ranks that are simulated.
void add_groups(RankPartition& partition, const Membership& membership, const Colours& colours) {
  const std::vector<Colours> by_number = colours_of_groups(colours, membership);
  // All colours of a group occur together, so the first of them identifies the group.
  std::map<std::uint32_t, std::uint32_t> position;
  for (std::size_t i = 0; i < partition.representatives.size(); ++i) {
    const auto rank = static_cast<std::size_t>(partition.representatives[i].rank);
    const Colours& group = by_number[group_number(rank, membership)];
    const auto [entry, is_new] =
        position.try_emplace(group.front(), static_cast<std::uint32_t>(partition.groups.size()));
    if (is_new) partition.groups.push_back(group);
    partition.group_of[i].push_back(entry->second);
  }
}

/// The position of the class of every rank.
Colours classes_of(std::span<const ClassOfRanks> classes, std::size_t ranks) {
  Colours class_of(ranks);
  if (classes.size() == 1) return class_of;
  for (std::uint32_t c = 0; c < classes.size(); ++c)
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (runs_on(*classes[c].program, static_cast<std::int64_t>(rank))) class_of[rank] = c;
  return class_of;
}

/// Divides the ranks into classes that behave alike; `times` are the ranks' kernel times.
Colours colours_of(std::span<const ClassOfRanks> classes, const Colours& class_of,
                   const std::vector<std::int64_t>& times, bool by_rank) {
  Colours colours(times.size());
  if (by_rank) {
    std::iota(colours.begin(), colours.end(), 0);
    return colours;
  }
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> numbers;
  for (std::size_t i = 0; i < times.size(); ++i)
    colours[i] = number_of(numbers, {class_of[i], times[i]});
  refine(colours, classes);
  return colours;
}

/// One rank for each colour. Colours are numbered in the order of their first ranks.
std::vector<Representative> representatives_of(const Colours& colours, const Colours& class_of,
                                               const std::vector<std::int64_t>& times) {
  std::vector<Representative> representatives;
  for (std::size_t i = 0; i < colours.size(); ++i) {
    if (colours[i] < representatives.size())
      ++representatives[colours[i]].ranks;
    else
      representatives.push_back({.rank = static_cast<std::int64_t>(i),
                                 .ranks = 1,
                                 .kernel_time = times[i],
                                 .of_class = class_of[i]});
  }
  return representatives;
}

using ChannelNumbers =
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t>;

/// Adds the channels of a representative. Representatives have the numbers of their colours.
Result<void> add_channels(RankPartition& partition, std::uint32_t own, const ClassOfRanks& one,
                          const Colours& colours, ChannelNumbers& numbers) {
  const Mesh& mesh = one.program->config.mesh;
  const std::int64_t rank = partition.representatives[own].rank;
  std::vector<std::uint32_t>& mine = partition.channel_of.emplace_back();
  for (const PeerChannel& channel : one.channels) {
    const Axis axis = channel.peer.axis;
    const std::int64_t step = channel.peer.step;
    const std::int64_t index = mesh.index(rank, axis) + step;
    const RankClass& ranks = one.program->classes[0];
    if (std::ranges::find(ranks.at, axis, &MeshPlace::axis) == ranks.at.end() || step == 0 ||
        index < 0 || index >= mesh.size(axis))
      return fail(fmt::format("class '{}'", ranks.role),
                  fmt::format("its sends and receives need a peer {} ranks further along {}, which "
                              "not all of its ranks have",
                              step, to_string(axis)));
    const std::uint32_t peer = colours[static_cast<std::size_t>(rank + step * mesh.stride(axis))];
    RankChannel ends{.sender = own, .receiver = peer};
    if (!channel.sends) std::swap(ends.sender, ends.receiver);
    const std::uint32_t number =
        number_of(numbers, {channel.communicator, ends.sender, ends.receiver});
    if (number == partition.channels.size()) partition.channels.push_back(ends);
    mine.push_back(number);
  }
  return {};
}

}  // namespace

Result<RankPartition> partition_ranks(std::span<const ClassOfRanks> classes,
                                      const RankVariation& variation) {
  const Program& program = *classes.front().program;
  if (variation.jitter.num < 0 || variation.jitter.value() > 1)
    return fail("--jitter", fmt::format("expected a share from 0 to 1, got {}/{}",
                                        variation.jitter.num, variation.jitter.den));
  const bool by_rank = variation.by_rank || variation.jitter.num > 0;
  const Mesh& mesh = program.config.mesh;
  const std::int64_t ranks = mesh.world_size();
  if (ranks < 1) return fail("mesh", fmt::format("expected at least 1 rank, got {}", ranks));
  const bool sends =
      std::ranges::any_of(classes, [](const ClassOfRanks& one) { return !one.channels.empty(); });
  if (!variation.is_any() && classes.size() == 1 && !sends) return one_class(program);

  if (ranks > kMostDistinctRanks)
    return fail("ranks",
                fmt::format("expected at most {} ranks, got {}", kMostDistinctRanks, ranks));
  MFSDP_LET(times, kernel_times(variation, ranks));
  const Colours class_of = classes_of(classes, times.size());
  const Colours colours = colours_of(classes, class_of, times, by_rank);
  RankPartition partition;
  partition.ranks = ranks;
  partition.jitter = fixed_point(variation.jitter);
  partition.seed = variation.seed;
  partition.representatives = representatives_of(colours, class_of, times);
  const auto simulated = std::ssize(partition.representatives);
  if (simulated > kMostSimulatedRanks)
    return fail(variation.by_rank          ? "--by-rank"
                : variation.jitter.num > 0 ? "--jitter"
                : variation.slow.empty()   ? "classes"
                                           : "--slow-rank",
                fmt::format("expected at most {} ranks that differ, got {}", kMostSimulatedRanks,
                            simulated));
  partition.group_of.resize(partition.representatives.size());
  for (const Communicator& communicator : program.communicators)
    add_groups(partition, Membership(communicator.axes, mesh), colours);
  ChannelNumbers numbers;
  for (std::uint32_t i = 0; i < partition.representatives.size(); ++i)
    MFSDP_TRY(add_channels(partition, i, classes[partition.representatives[i].of_class], colours,
                           numbers));
  return partition;
}

}  // namespace mfsdp
