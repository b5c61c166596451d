#include "verify/findings/finding.hpp"

#include <algorithm>

namespace mfsdp {
namespace {

using enum Severity;

constexpr std::array kRules{
    RuleInfo{"MF001", "unknown-id", "An id that the program does not have.", error},
    RuleInfo{"MF002", "double-id", "Two things of one kind have one id.", error},
    RuleInfo{"MF003", "out-of-bounds", "An operand leaves its buffer, or a buffer leaves its pool.",
             error},
    RuleInfo{"MF004", "malformed", "A number or list that no plan can have.", error},
    RuleInfo{"MF005", "group", "A group of collectives holds another op, or does not close.",
             error},
    RuleInfo{"MF006", "boundary",
             "What is live at a segment's begin or end is not what the plan states.", error},
    RuleInfo{"MF101", "race",
             "Two ops touch the same bytes, one of them writes, and nothing orders them.", error},
    RuleInfo{"MF102", "use-outside-lifetime",
             "An op touches a buffer before its acquire or after its release.", error},
    RuleInfo{"MF103", "shared-place", "Two buffers that are live together share bytes.", error},
    RuleInfo{"MF104", "never-recorded", "A wait for an event that nothing has recorded yet.",
             error},
    RuleInfo{"MF105", "wrong-record",
             "A wait gets another record than those that the plan binds it to.", error},
    RuleInfo{"MF106", "acquired-twice", "A buffer is acquired while it is live.", error},
    RuleInfo{"MF107", "released-twice", "A buffer is released while it is not live.", error},
    RuleInfo{"MF108", "unguarded-copy",
             "No record behind a copy of the host's memory tells the host that it has ended.",
             error},
    RuleInfo{"MF201", "collective-mismatch",
             "Two classes of ranks issue different collectives on one communicator.", error},
    RuleInfo{"MF202", "deadlock", "Collectives wait for each other in a cycle.", error},
    RuleInfo{"MF203", "launch-order",
             "Collectives wait in a cycle once launches keep the host's order.", error},
    RuleInfo{"MF204", "collective-shape",
             "A collective's count, dtype or reduction does not fit its operands.", error},
    RuleInfo{"MF205", "registered-buffer",
             "A peer may touch a registered buffer while this rank uses it.", error},
    RuleInfo{"MF601", "live-weights", "More gathered weights are live than the prefetch allows.",
             error},
    RuleInfo{"MF602", "live-gradients", "More full gradients are live than there are slots.",
             error},
    RuleInfo{"MF603", "pool-bound", "A pool's stated lower bound is not that of its plans.", note},
    RuleInfo{"MF604", "redundant-wait", "A wait that orders nothing new.", note},
};

}  // namespace

std::span<const RuleInfo> rules() { return kRules; }

const RuleInfo* find_rule(std::string_view id) {
  const auto* found = std::ranges::find(kRules, id, &RuleInfo::id);
  return found == kRules.end() ? nullptr : found;
}

bool is_error(std::string_view rule) {
  const RuleInfo* found = find_rule(rule);
  return found == nullptr || found->severity == error;
}

}  // namespace mfsdp
