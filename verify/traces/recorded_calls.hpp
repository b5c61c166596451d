// Calls of collectives as each rank recorded them, and what they say side by side.
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

/// How far a rank had come with a call when its record was written.
enum class CallState { scheduled, started, completed };
[[nodiscard]] constexpr std::string_view to_string(CallState state) {
  constexpr std::array<std::string_view, 3> names{"scheduled", "started", "completed"};
  return names[static_cast<std::size_t>(state)];
}

/// What all ranks must bring, or take, alike.
struct CallSide {
  std::optional<std::int64_t> elements;  ///< none: not written, or free to differ
  std::string dtype;                     ///< "Float"; several joined by a comma; "" not written

  friend bool operator==(const CallSide&, const CallSide&) = default;
};

/// A place in a group's order: calls that were coalesced into one have one number.
struct CallKey {
  std::int64_t number = 0;  ///< in the group, as the recorder counts
  std::int64_t part = 0;    ///< of that number, from 0

  friend auto operator<=>(const CallKey&, const CallKey&) = default;
};

struct RecordedCall {
  CallKey key;
  std::string kind;  ///< "all_reduce"
  CallSide input;
  CallSide output;
  CallState state = CallState::scheduled;
  bool ended = false;
  std::string place;  ///< the line of code that called it, "train.py:14"; "" not written
};

/// What one rank recorded of a group.
struct GroupMember {
  std::int64_t rank = 0;
  std::vector<RecordedCall> calls;  ///< ascending by key
  bool whole = false;               ///< nothing that it recorded was overwritten
};

struct RecordedGroup {
  std::string name;                  ///< as people know it: "0 (default_pg)"
  std::vector<std::int64_t> ranks;   ///< that it has, ascending
  std::vector<GroupMember> members;  ///< whose records there are, ascending by rank
  bool every_call = true;            ///< false: recorders wrote some completed calls, not each
  bool pairs = false;                ///< sends of one rank to another: numbers are counted here
};

/// Compares what ranks recorded: MF815 to MF819. Of each group the first place where ranks differ
/// is told, and the first call that all members launched and that has not ended: of ranks without a
/// record nothing is said, but that nothing is known.
[[nodiscard]] RuleVerdict judge_records(std::span<const RecordedGroup> groups);

}  // namespace mfsdp::traces
