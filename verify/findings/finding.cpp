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
    RuleInfo{"MF701", "unknown-strategy", "A sharding strategy that does not exist.", error},
    RuleInfo{"MF702", "two-fsdp", "Two implementations of FSDP are switched on.", error},
    RuleInfo{"MF703", "checkpoint-format",
             "A checkpoint format that the kind of sharding cannot write.", error},
    RuleInfo{"MF704", "weight-hash", "A check of whole weights where each rank holds a shard.",
             error},
    RuleInfo{"MF705", "outer-strategy", "The outer axis shards what the inner one does not.",
             error},
    RuleInfo{"MF706", "outer-without-groups", "A strategy for an outer axis that does not exist.",
             note},
    RuleInfo{"MF707", "meta-init", "Weights that stay whole are made on the meta device.", error},
    RuleInfo{"MF708", "gather-overlap", "Gathers are to overlap, but reductions are not.", error},
    RuleInfo{"MF709", "rank-order", "An order of ranks that the sharding does not support.", error},
    RuleInfo{"MF710", "manual-registration",
             "Buffers are to be registered that are not allocated so.", error},
    RuleInfo{"MF711", "slow-registration", "Every buffer is registered by itself.", note},
    RuleInfo{"MF712", "average-in-collective", "An average that the collective cannot do.", note},
    RuleInfo{"MF713", "mxfp8-buffer", "A buffer that the sharding does not have.", note},
    RuleInfo{"MF714", "optimizer", "An optimizer that the sharding does not support.", error},
    RuleInfo{"MF715", "grouped-weight", "A layout of experts that the sharding does not support.",
             error},
    RuleInfo{"MF716", "hybrid-context", "A context parallelism that the sharding does not support.",
             error},
    RuleInfo{"MF717", "distributed-optimizer", "A setting that is overruled.", note},
    RuleInfo{"MF718", "connections-conflict",
             "Two kinds of parallelism want different hardware queues.", note},
    RuleInfo{"MF719", "accumulation-fusion",
             "Fused accumulation that may add where it must overwrite.", note},
    RuleInfo{"MF720", "torch-fsdp2",
             "A setting that PyTorch's FSDP2 does not support in Megatron-LM.", error},
    RuleInfo{"MF721", "async-save", "A checkpoint format that is not saved beside training.",
             error},
    RuleInfo{"MF722", "unsharded", "Sharding is asked for by half of the settings that it takes.",
             note},
    RuleInfo{"MF731", "device-connections", "All streams share one hardware queue.", error},
    RuleInfo{"MF732", "expandable-segments", "An allocator whose memory NCCL cannot register.",
             error},
    RuleInfo{"MF733", "implicit-launch-order",
             "Communicators whose launches nothing keeps in one order.", note},
    RuleInfo{"MF734", "launch-blocking", "Every launch of a kernel waits for its end.", note},
    RuleInfo{"MF735", "blocking-wait", "The host waits for every collective.", note},
    RuleInfo{"MF736", "record-streams", "A variable that means nothing any more.", note},
    RuleInfo{"MF737", "nvlink-sharp", "NVLink SHARP is switched off where it would save most.",
             note},
    RuleInfo{"MF738", "transport-off", "A transport of NCCL is switched off.", note},
    RuleInfo{"MF739", "no-symmetric-memory",
             "Memory that symmetric registration needs is switched off.", note},
    RuleInfo{"MF740", "deterministic-algorithm",
             "Deterministic training with any algorithm of NCCL.", error},
    RuleInfo{"MF751", "no-prefetch", "No gather can hide.", note},
    RuleInfo{"MF752", "one-gradient-slot", "Backward waits for each reduction.", note},
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
