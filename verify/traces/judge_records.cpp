#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "verify/traces/rank_words.hpp"
#include "verify/traces/recorded_calls.hpp"
#include "verify/traces/waiting_ranks.hpp"

namespace mfsdp::traces {
namespace {

/// The members' records at one position of a group's order.
struct Row {
  CallKey key;
  std::vector<std::pair<std::int64_t, const RecordedCall*>> called;  ///< by rank
  std::vector<const GroupMember*> ended_before;  ///< their records end before this position
  std::vector<const GroupMember*> passed_over;   ///< they have later calls, but not this one
};

/// The position from which all members' records are complete: older ones may be overwritten.
CallKey common_begin(const RecordedGroup& group) {
  CallKey begin;
  for (const GroupMember& member : group.members)
    if (!member.whole && !member.calls.empty()) begin = std::max(begin, member.calls.front().key);
  return begin;
}

const RecordedCall* call_at(const GroupMember& member, CallKey key) {
  const auto found = std::ranges::lower_bound(member.calls, key, {}, &RecordedCall::key);
  return found != member.calls.end() && found->key == key ? &*found : nullptr;
}

Row row_of(const RecordedGroup& group, CallKey key) {
  Row row{.key = key, .called = {}, .ended_before = {}, .passed_over = {}};
  for (const GroupMember& member : group.members) {
    if (const RecordedCall* call = call_at(member, key))
      row.called.emplace_back(member.rank, call);
    else if (member.calls.empty() || member.calls.back().key < key)
      row.ended_before.push_back(&member);
    else
      row.passed_over.push_back(&member);
  }
  return row;
}

std::string place_of(const RecordedGroup& group, const Row& row) {
  const std::string_view unit = group.pairs ? "transfer" : "collective";
  std::string text = fmt::format("group {}, {} {}", group.name, unit, row.key.number);
  if (row.key.part > 0) text += fmt::format(", part {}", row.key.part + 1);
  return text;
}

std::string with_place(const RecordedCall& call, std::string text) {
  return call.place.empty() ? text : text + " at " + call.place;
}

std::string side_words(const CallSide& side) {
  const std::string elements =
      side.elements ? fmt::format("{}", *side.elements) : std::string("any number");
  if (side.dtype.empty()) return elements;
  if (side.elements && side.dtype == "bytes") return elements + " bytes";
  return elements + " of " + side.dtype;
}

std::string sides_words(const RecordedCall& call) {
  const std::string input = side_words(call.input);
  return call.output == CallSide() ? input
                                   : fmt::format("in {}, out {}", input, side_words(call.output));
}

/// The later position at which a rank with another call here has the others' call.
std::string other_order(const RecordedGroup& group, const Row& row) {
  for (const GroupMember& member : group.members) {
    const RecordedCall* own = call_at(member, row.key);
    if (own == nullptr || own->kind == row.called.front().second->kind) continue;
    for (const RecordedCall& later : member.calls)
      if (later.key > row.key && later.kind == row.called.front().second->kind)
        return fmt::format("; rank {} calls {} later, as number {}: the order differs", member.rank,
                           later.kind, later.key.number);
  }
  return "";
}

std::optional<Finding> unlike_calls(const RecordedGroup& group, const Row& row) {
  RanksByWord kinds;
  std::set<std::string> names;
  for (const auto& [rank, call] : row.called) {
    kinds.add(rank, with_place(*call, call->kind));
    names.insert(call->kind);
  }
  const bool lacks = group.every_call && !row.passed_over.empty() && !row.called.empty();
  for (const GroupMember* member : row.passed_over)
    if (lacks) kinds.add(member->rank, "nothing");
  if (names.size() < 2 && !lacks) return std::nullopt;
  return finding_without_ops(
      "MF815", fmt::format("{}: ranks call different collectives, here first: {}{}",
                           place_of(group, row), kinds.text(), other_order(group, row)));
}

/// Whether all ranks recorded the same value for that side; a missing value matches any other.
bool are_alike(const Row& row, CallSide RecordedCall::* side) {
  CallSide known;
  return std::ranges::all_of(row.called, [&](const auto& called) {
    const CallSide& own = called.second->*side;
    if (!known.elements) known.elements = own.elements;
    if (known.dtype.empty()) known.dtype = own.dtype;
    return (!own.elements || own.elements == known.elements) &&
           (own.dtype.empty() || own.dtype == known.dtype);
  });
}

std::optional<Finding> unlike_sizes(const RecordedGroup& group, const Row& row) {
  if (are_alike(row, &RecordedCall::input) && are_alike(row, &RecordedCall::output))
    return std::nullopt;
  RanksByWord sizes;
  for (const auto& [rank, call] : row.called) sizes.add(rank, sides_words(*call));
  return finding_without_ops("MF816", fmt::format("{}, {}: {}", place_of(group, row),
                                                  row.called.front().second->kind, sizes.text()));
}

std::optional<Finding> not_joined(const RecordedGroup& group, const Row& row,
                                  WaitingRanks& waiting) {
  if (!group.every_call || row.called.empty() || row.ended_before.empty()) return std::nullopt;
  RanksByWord states;
  for (const auto& [rank, call] : row.called) {
    states.add(rank, with_place(*call, fmt::format("launched it ({})", to_string(call->state))));
    for (const GroupMember* member : row.ended_before)
      if (!call->ended) waiting.add(rank, member->rank, group.name);
  }
  RanksByWord last;
  for (const GroupMember* member : row.ended_before)
    last.add(member->rank,
             member->calls.empty()
                 ? std::string("did not, and nothing before it")
                 : fmt::format("did not; its last there is number {}, {}",
                               member->calls.back().key.number,
                               with_place(member->calls.back(), member->calls.back().kind)));
  return finding_without_ops(
      "MF817", fmt::format("{}, {}: {}; {}", place_of(group, row), row.called.front().second->kind,
                           states.text(), last.text()));
}

/// Ranks of a group without a record that they launched the call.
std::vector<std::int64_t> ranks_without_record(const RecordedGroup& group, const Row& row) {
  std::vector<std::int64_t> missing;
  for (const std::int64_t rank : group.ranks)
    if (std::ranges::find(row.called, rank, [](const auto& called) { return called.first; }) ==
        row.called.end())
      missing.push_back(rank);
  return missing;
}

/// The ranks that launched a call, according to the records of all members.
std::string launched_words(const RecordedGroup& group, const Row& row) {
  if (!group.ranks.empty() && ranks_without_record(group, row).empty())
    return "all ranks launched it";
  std::vector<std::int64_t> called;
  for (const auto& [rank, call] : row.called) called.push_back(rank);
  return fmt::format("{} launched it", ranks_words(called));
}

/// The ranks whose state is unknown; empty if there are none.
std::string unknown_words(const RecordedGroup& group, const Row& row) {
  if (group.ranks.empty()) return "; the group's other ranks are not known";
  const std::vector<std::int64_t> missing = ranks_without_record(group, row);
  if (missing.empty()) return "";
  return fmt::format("; {} left no record of it", ranks_words(missing));
}

std::optional<Finding> unfinished(const RecordedGroup& group, const Row& row,
                                  WaitingRanks& waiting) {
  std::vector<std::int64_t> open;
  std::vector<std::int64_t> began;
  std::vector<std::int64_t> not_begun;
  for (const auto& [rank, call] : row.called) {
    if (!call->ended) open.push_back(rank);
    (call->state == CallState::scheduled && !call->ended ? not_begun : began).push_back(rank);
  }
  if (open.empty()) return std::nullopt;
  std::string text =
      fmt::format("{}, {}: {}; it is unfinished on {}", place_of(group, row),
                  row.called.front().second->kind, launched_words(group, row), ranks_words(open));
  if (!began.empty() && !not_begun.empty()) {
    text += fmt::format("; it began on {} and has not begun on {}: the former wait for the latter",
                        ranks_words(began), ranks_words(not_begun));
    for (const std::int64_t rank : began)
      for (const std::int64_t other : not_begun) waiting.add(rank, other, group.name);
  }
  return finding_without_ops("MF818", text + unknown_words(group, row));
}

std::set<CallKey> keys_from(const RecordedGroup& group, CallKey begin) {
  std::set<CallKey> keys;
  for (const GroupMember& member : group.members)
    for (const RecordedCall& call : member.calls)
      if (call.key >= begin) keys.insert(call.key);
  return keys;
}

std::vector<Finding> judge_group(const RecordedGroup& group, WaitingRanks& waiting) {
  std::vector<Finding> findings;
  bool found_unfinished = false;
  for (const CallKey key : keys_from(group, common_begin(group))) {
    const Row row = row_of(group, key);
    std::optional<Finding> divergence = unlike_calls(group, row);
    if (!divergence) divergence = unlike_sizes(group, row);
    if (!divergence) divergence = not_joined(group, row, waiting);
    if (divergence) {
      findings.push_back(std::move(*divergence));
      break;  // later differences follow from this one
    }
    if (found_unfinished || !group.every_call) continue;
    if (auto finding = unfinished(group, row, waiting)) {
      findings.push_back(std::move(*finding));
      found_unfinished = true;
    }
  }
  return findings;
}

bool has_common_call(const RecordedGroup& group) {
  std::set<CallKey> seen;
  for (const GroupMember& member : group.members)
    for (const RecordedCall& call : member.calls)
      if (!seen.insert(call.key).second) return true;
  return false;
}

std::string first_kind(const RecordedGroup& group) {
  for (const GroupMember& member : group.members)
    if (!member.calls.empty()) return member.calls.front().kind;
  return "call";
}

/// The reasons why a group cannot be judged completely; empty if it can.
std::vector<NotJudged> gaps_of(const RecordedGroup& group) {
  std::vector<std::int64_t> missing;
  for (const std::int64_t rank : group.ranks)
    if (std::ranges::find(group.members, rank, &GroupMember::rank) == group.members.end())
      missing.push_back(rank);
  std::vector<NotJudged> list;
  const std::string rule = group.every_call ? "MF817" : "MF815";
  if (group.ranks.empty() && group.members.size() == 1)
    list.push_back({rule, fmt::format("group {}: no dump lists its ranks (pg_config), and only "
                                      "rank {} has records",
                                      group.name, group.members[0].rank)});
  if (!group.every_call && group.members.size() > 1 && !has_common_call(group))
    list.push_back({"MF816", fmt::format("group {}: no {} is in the records of two ranks",
                                         group.name, first_kind(group))});
  if (!missing.empty())
    list.push_back({rule, fmt::format("group {}: there is no record of {}", group.name,
                                      ranks_words(missing))});
  std::vector<std::int64_t> overwritten;
  for (const GroupMember& member : group.members)
    if (!member.whole && (member.calls.empty() || group.pairs)) overwritten.push_back(member.rank);
  if (!overwritten.empty())
    list.push_back({rule, fmt::format("group {}: older records of {} are overwritten, and the rest "
                                      "cannot be counted; raise TORCH_FR_BUFFER_SIZE",
                                      group.name, ranks_words(overwritten))});
  return list;
}

/// Members whose calls can be counted.
RecordedGroup countable(RecordedGroup group) {
  std::erase_if(group.members,
                [](const GroupMember& member) { return !member.whole && member.calls.empty(); });
  const bool overwritten =
      std::ranges::any_of(group.members, std::logical_not(), &GroupMember::whole);
  if (group.pairs && overwritten) group.members.clear();
  return group;
}

}  // namespace

RuleVerdict judge_records(std::span<const RecordedGroup> groups) {
  RuleVerdict verdict;
  WaitingRanks waiting;
  for (const RecordedGroup& group : groups) {
    for (Finding& finding : judge_group(countable(group), waiting))
      verdict.findings.push_back(std::move(finding));
    for (NotJudged& gap : gaps_of(group)) verdict.not_judged.push_back(std::move(gap));
  }
  if (groups.empty()) verdict.not_judged.push_back({"MF815", "no record has a call"});
  if (auto cycle = waiting.cycle()) verdict.findings.push_back(std::move(*cycle));
  return verdict;
}

}  // namespace mfsdp::traces
