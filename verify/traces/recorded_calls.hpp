// Collective calls as each rank recorded them, and their comparison.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/findings/finding.hpp"

namespace mfsdp::traces {

/// State of a call when the rank's record was written.
enum class CallState { scheduled, started, completed };
[[nodiscard]] constexpr std::string_view to_string(CallState state) {
  constexpr std::array<std::string_view, 3> names{"scheduled", "started", "completed"};
  return names[static_cast<std::size_t>(state)];
}

/// Input or output of a call; must be equal on all ranks.
struct CallSide {
  std::optional<std::int64_t> elements;  ///< none: not recorded, or may differ between ranks
  std::string dtype;                     ///< "Float"; several joined by a comma; "" not recorded

  friend bool operator==(const CallSide&, const CallSide&) = default;
};

/// A position in a group's order. Calls that were coalesced share a number.
struct CallKey {
  std::int64_t number = 0;  ///< in the group, as the recorder counts
  std::int64_t part = 0;    ///< index among the calls with this number

  friend auto operator<=>(const CallKey&, const CallKey&) = default;
};

struct RecordedCall {
  CallKey key;
  std::string kind;  ///< "all_reduce"
  CallSide input;
  CallSide output = {};
  CallState state = CallState::scheduled;
  bool ended = false;
  std::string place;  ///< the line of code that called it, "train.py:14"; "" not recorded
};

/// One rank's records of a group.
struct GroupMember {
  std::int64_t rank = 0;
  std::vector<RecordedCall> calls;  ///< ascending by key
  bool whole = false;               ///< no record was overwritten
};

struct RecordedGroup {
  std::string name;                       ///< for messages: "0 (default_pg)"
  std::vector<std::int64_t> ranks;        ///< all ranks of the group, ascending
  std::vector<GroupMember> members = {};  ///< ranks with records, ascending by rank
  bool every_call = true;  ///< false: recorders wrote only some of the completed calls
  bool pairs = false;      ///< sends of one rank to another, numbered by the reader
};

/// Compares the ranks' records: MF815 to MF819. Reports for each group the first position where
/// ranks differ, and the first call that all members launched and that has not ended. Nothing is
/// claimed about ranks without records, except that their state is unknown.
[[nodiscard]] RuleVerdict judge_records(std::span<const RecordedGroup> groups);

}  // namespace mfsdp::traces
