#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/base/text.hpp"
#include "verify/traces/file_rank.hpp"
#include "verify/traces/flight_recorder.hpp"
#include "verify/traces/rank_words.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kDefaultGroup = "default_pg";

/// A group's ranks, and the dump that first listed them.
struct GroupRanks {
  std::vector<std::int64_t> ranks;
  std::string where;
};

Result<void> check_version(const FlightDump& dump, const FlightDump& other) {
  if (dump.version == other.version) return {};
  return fail(dump.where,
              fmt::format("version {}, but {} in {}: expected dumps of one job",
                          printable(dump.version), printable(other.version), other.where));
}

Result<void> check_ranks(const std::vector<FlightDump>& dumps) {
  for (std::size_t i = 1; i < dumps.size(); ++i) {
    if (dumps[i].rank == dumps[i - 1].rank)
      return fail_of_one_rank(dumps[i].where, dumps[i].rank, dumps[i - 1].where);
    MFSDP_TRY(check_version(dumps[i], dumps[0]));
  }
  return {};
}

/// Checks that a rank belongs to each group whose calls it recorded.
Result<void> check_member(const FlightDump& dump, const std::string& name,
                          const FlightGroup& group) {
  const bool is_one = group.ranks.empty() || std::ranges::binary_search(group.ranks, dump.rank);
  if (is_one || (group.calls.empty() && group.transfers.empty())) return {};
  return fail(dump.where, fmt::format("rank {} recorded calls of group {}, which has {}: expected "
                                      "the rank that wrote the file as the number in its name",
                                      dump.rank, printable(name), ranks_words(group.ranks)));
}

/// Groups of one name without a common rank are different groups and are not compared.
Result<void> check_group(const FlightDump& dump, const std::string& name, const FlightGroup& group,
                         std::map<std::string, std::vector<GroupRanks>>& known) {
  MFSDP_TRY(check_member(dump, name, group));
  if (!std::ranges::binary_search(group.ranks, dump.rank)) return {};
  for (const GroupRanks& other : known[name]) {
    if (other.ranks == group.ranks) return {};
    std::vector<std::int64_t> shared;
    std::ranges::set_intersection(other.ranks, group.ranks, std::back_inserter(shared));
    if (!shared.empty())
      return fail(
          dump.where,
          fmt::format("group {} has {}, but {} in {}: expected dumps of one job", printable(name),
                      ranks_words(group.ranks), ranks_words(other.ranks), other.where));
  }
  known[name].push_back({group.ranks, dump.where});
  return {};
}

/// Name and ranks, which identify a group.
using GroupId = std::pair<std::string, std::vector<std::int64_t>>;

/// If dumps do not list a group's ranks, its members are the ranks that called it; the default
/// group contains all ranks.
bool is_member(const FlightDump& dump, const GroupId& id, bool is_default) {
  if (!id.second.empty()) return std::ranges::binary_search(id.second, dump.rank);
  return is_default || dump.groups.contains(id.first);
}

std::string title_of(const std::string& name, const std::string& description) {
  return description.empty() || description == "undefined"
             ? name
             : fmt::format("{} ({})", name, description);
}

RecordedGroup collectives_of(const GroupId& id, const std::string& description,
                             const std::vector<FlightDump>& dumps) {
  RecordedGroup group{.name = title_of(id.first, description), .ranks = id.second, .members = {}};
  for (const FlightDump& dump : dumps) {
    if (!is_member(dump, id, description == kDefaultGroup)) continue;
    const auto found = dump.groups.find(id.first);
    group.members.push_back(
        {.rank = dump.rank,
         .calls = found == dump.groups.end() ? std::vector<RecordedCall>() : found->second.calls,
         .whole = dump.whole});
  }
  return group;
}

/// The transfers that a rank recorded between two ranks of its group, numbered.
std::vector<RecordedCall> transfers_of(const FlightDump& dump, const std::string& name,
                                       std::pair<std::int64_t, std::int64_t> ends) {
  std::vector<RecordedCall> calls;
  const auto found = dump.groups.find(name);
  if (found == dump.groups.end()) return calls;
  for (const FlightTransfer& row : found->second.transfers) {
    if (std::pair(row.from, row.to) != ends) continue;
    calls.push_back(row.call);
    calls.back().key.number = std::ssize(calls);
  }
  return calls;
}

/// The job's rank for a rank of a group; the group's own number if the group's ranks are unknown.
std::int64_t global_rank(const GroupId& id, std::int64_t place) {
  const bool known = place >= 0 && place < std::ssize(id.second);
  return known ? id.second[static_cast<std::size_t>(place)] : place;
}

void add_transfers(std::vector<RecordedGroup>& groups, const GroupId& id,
                   const std::vector<FlightDump>& dumps) {
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (const FlightDump& dump : dumps) {
    const auto found = dump.groups.find(id.first);
    if (found == dump.groups.end() || !is_member(dump, id, false)) continue;
    for (const FlightTransfer& row : found->second.transfers) pairs.insert({row.from, row.to});
  }
  for (const auto& ends : pairs) {
    const std::int64_t from = global_rank(id, ends.first);
    const std::int64_t to = global_rank(id, ends.second);
    RecordedGroup group{.name = fmt::format("{}, rank {} to rank {}", id.first, from, to),
                        .ranks = {std::min(from, to), std::max(from, to)},
                        .every_call = true,
                        .pairs = true};
    for (const FlightDump& dump : dumps)
      if (dump.rank == from || dump.rank == to)
        group.members.push_back(
            {.rank = dump.rank, .calls = transfers_of(dump, id.first, ends), .whole = dump.whole});
    groups.push_back(std::move(group));
  }
}

/// Checks that two dumps can come from one job.
Result<void> check_pair(const FlightDump& dump, const FlightDump& other) {
  if (dump.rank == other.rank) return fail_of_one_rank(dump.where, dump.rank, other.where);
  MFSDP_TRY(check_version(dump, other));
  std::map<std::string, std::vector<GroupRanks>> known;
  for (const auto& [name, group] : other.groups) MFSDP_TRY(check_group(other, name, group, known));
  for (const auto& [name, group] : dump.groups) MFSDP_TRY(check_group(dump, name, group, known));
  return {};
}

/// The reason why a dump and most of the others cannot come from one job; none if they can.
std::optional<Error> contradiction(const FlightDump& dump, const std::vector<FlightDump>& dumps) {
  for (const auto& [name, group] : dump.groups)
    if (const auto good = check_member(dump, name, group); !good) return good.error();
  std::size_t count = 0;
  std::optional<Error> first;
  for (const FlightDump& other : dumps) {
    if (&other == &dump) continue;
    const auto good = check_pair(dump, other);
    if (good) continue;
    ++count;
    if (!first) first = good.error();
  }
  return 2 * count > dumps.size() - 1 ? first : std::nullopt;
}

}  // namespace

Result<JoinedDumps> join_agreeing_dumps(std::vector<FlightDump> dumps) {
  auto all = join_dumps(dumps);
  if (all) return JoinedDumps{.groups = std::move(*all), .left_out = {}};
  std::vector<FlightDump> agreeing;
  std::vector<Error> left_out;
  for (const FlightDump& dump : dumps) {
    if (auto why = contradiction(dump, dumps))
      left_out.push_back(std::move(*why));
    else
      agreeing.push_back(dump);
  }
  if (left_out.empty() || agreeing.size() <= left_out.size())
    return tl::unexpected<Error>(all.error());
  MFSDP_LET(groups, join_dumps(std::move(agreeing)));
  return JoinedDumps{.groups = std::move(groups), .left_out = std::move(left_out)};
}

Result<std::vector<RecordedGroup>> join_dumps(std::vector<FlightDump> dumps) {
  std::ranges::stable_sort(dumps, {}, &FlightDump::rank);
  MFSDP_TRY(check_ranks(dumps));
  std::map<std::string, std::vector<GroupRanks>> known;
  std::map<GroupId, std::string> ids;  // value: description
  for (const FlightDump& dump : dumps)
    for (const auto& [name, group] : dump.groups) {
      MFSDP_TRY(check_group(dump, name, group, known));
      std::string& description = ids[{name, group.ranks}];
      if (description.empty()) description = group.description;
    }
  std::vector<RecordedGroup> groups;
  for (const auto& [id, description] : ids) {
    groups.push_back(collectives_of(id, description, dumps));
    add_transfers(groups, id, dumps);
  }
  return groups;
}

}  // namespace mfsdp::traces
