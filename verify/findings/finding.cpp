#include "verify/findings/finding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace mfsdp {
namespace {

using enum Severity;

constexpr std::array kRules{
    RuleInfo{"MF001", "unknown-id", "An id that the program does not have."},
    RuleInfo{"MF002", "double-id", "Two things of one kind have one id."},
    RuleInfo{"MF003", "out-of-bounds",
             "An operand leaves its buffer, or a buffer leaves its pool."},
    RuleInfo{"MF004", "malformed", "A number or list that no plan can have."},
    RuleInfo{"MF005", "group", "A group of collectives holds another op, or does not close."},
    RuleInfo{"MF006", "boundary",
             "At a segment's begin or end, other buffers are live than the plan states."},
    RuleInfo{"MF007", "kernel-form",
             "A kernel's operands, dtypes and attributes do not fit each other or the model."},
    RuleInfo{"MF101", "race",
             "Two ops touch the same bytes, one of them writes, and nothing orders them."},
    RuleInfo{"MF102", "use-outside-lifetime",
             "An op touches a buffer before its acquire or after its release."},
    RuleInfo{"MF103", "shared-place", "Two buffers that are live together share bytes."},
    RuleInfo{"MF104", "never-recorded", "A wait for an event that nothing has recorded yet."},
    RuleInfo{"MF105", "wrong-record",
             "A wait gets another record than those that the plan binds it to."},
    RuleInfo{"MF106", "acquired-twice", "A buffer is acquired while it is live."},
    RuleInfo{"MF107", "released-twice", "A buffer is released while it is not live."},
    RuleInfo{"MF108", "unguarded-copy",
             "No event is recorded after a copy from or to a port: the host cannot know its end."},
    RuleInfo{"MF111", "unwritten-read",
             "An op reads bytes that nothing has written since they were acquired."},
    RuleInfo{"MF112", "unused-op", "No op reads what an op writes.", note},
    RuleInfo{"MF113", "wrong-value", "A kernel reads another value than the model computes with."},
    RuleInfo{"MF115", "unreported", "A step's loss or norm does not reach the host."},
    RuleInfo{"MF201", "collective-mismatch",
             "Two classes of ranks issue different collectives on one communicator."},
    RuleInfo{"MF202", "deadlock", "Collectives wait for each other in a cycle."},
    RuleInfo{"MF203", "launch-order",
             "Collectives wait in a cycle once launches keep the host's order."},
    RuleInfo{"MF204", "collective-shape",
             "A collective's count, dtype or reduction does not fit its operands."},
    RuleInfo{"MF205", "registered-buffer",
             "A peer may access registered memory while this rank uses it, or a collective cannot "
             "use the "
             "symmetric memory that its communicator asks for."},
    RuleInfo{"MF206", "no-peer", "A send or receive names a peer that does not exist."},
    RuleInfo{"MF301", "missing-gradient",
             "A gradient lacks a contribution of a microbatch when it is read."},
    RuleInfo{"MF302", "doubled-gradient",
             "A gradient contains a contribution of a microbatch twice."},
    RuleInfo{"MF303", "unreduced-gradient", "A gradient is not summed over an axis of the mesh."},
    RuleInfo{"MF304", "reduced-twice", "A gradient is summed over an axis more than once."},
    RuleInfo{"MF305", "stale-gradient",
             "A gradient contains data of an earlier step, or bytes that nothing wrote."},
    RuleInfo{"MF306", "wrong-gradient",
             "A gradient belongs to another unit, or is written to another place."},
    RuleInfo{
        "MF307", "unscaled-gradient",
        "An update does not multiply its gradient by this step's 1/T (T: tokens of the batch)."},
    RuleInfo{"MF308", "scaled-twice", "A gradient is multiplied by 1/T more than once."},
    RuleInfo{"MF309", "padding", "The padding of a gradient is not zero when it is read."},
    RuleInfo{"MF310", "narrow-sum", "A gradient is summed in another dtype than configured."},
    RuleInfo{"MF311", "norm", "An update is not clipped by this step's norm as configured."},
    RuleInfo{"MF312", "microbatch-count",
             "A step has another number of microbatches than configured."},
    RuleInfo{"MF313", "loss-scale",
             "The loss scale is not applied, removed or updated as configured."},
    RuleInfo{"MF401", "stale-weight", "A kernel reads weights of another step."},
    RuleInfo{"MF402", "ungathered-weight",
             "A kernel reads weights before any gather or update wrote them."},
    RuleInfo{"MF403", "wrong-weight",
             "A kernel reads, or a gather brings, weights of another unit or place."},
    RuleInfo{"MF404", "gathered-twice", "A unit is gathered while it is still gathered.", note},
    RuleInfo{
        "MF405", "wrong-direction",
        "An update of Muon does not use this step's momentum with each matrix orthogonalised once "
        "as a whole."},
    RuleInfo{"MF501", "parameter-layout",
             "Parameters and padding do not cover their group exactly once."},
    RuleInfo{"MF502", "group-layout",
             "Groups overlap in a buffer, share a parameter, or are of another dtype."},
    RuleInfo{"MF503", "slice-size", "A buffer does not hold a shard of its group."},
    RuleInfo{"MF504", "update-slice",
             "An update's gradient, weights and state are not the same shard of its group."},
    RuleInfo{"MF505", "reduce-alias",
             "A reduction overwrites its input outside of the rank's own shard."},
    RuleInfo{"MF506", "rank-slices",
             "All ranks together do not reduce, gather or update each element of a group once."},
    RuleInfo{"MF601", "live-weights", "More gathered weights are live than the prefetch allows."},
    RuleInfo{"MF602", "live-gradients", "More full gradients are live than there are slots."},
    RuleInfo{"MF603", "pool-bound", "A pool's stated lower bound is not that of its plans.", note},
    RuleInfo{"MF604", "redundant-wait", "A wait that orders nothing new.", note},
    RuleInfo{"MF701", "unknown-strategy", "A sharding strategy that does not exist."},
    RuleInfo{"MF702", "two-fsdp", "Two implementations of FSDP are switched on."},
    RuleInfo{"MF703", "checkpoint-format",
             "A checkpoint format that the kind of sharding cannot write."},
    RuleInfo{"MF704", "weight-hash", "A check of whole weights where each rank holds a shard."},
    RuleInfo{"MF705", "outer-strategy", "The outer axis shards what the inner one does not."},
    RuleInfo{"MF706", "outer-without-groups", "A strategy for an outer axis that does not exist.",
             note},
    RuleInfo{"MF707", "meta-init", "Weights that stay whole are made on the meta device."},
    RuleInfo{"MF708", "gather-overlap", "Gathers are to overlap, but reductions are not."},
    RuleInfo{"MF709", "rank-order", "An order of ranks that the sharding does not support."},
    RuleInfo{"MF710", "manual-registration",
             "Buffers are to be registered that are not allocated so."},
    RuleInfo{"MF712", "average-in-collective", "An average that the collective cannot do.", note},
    RuleInfo{"MF713", "mxfp8-buffer", "A buffer that the sharding does not have.", note},
    RuleInfo{"MF714", "optimizer", "An optimizer that the sharding does not support."},
    RuleInfo{"MF715", "grouped-weight", "A layout of experts that the sharding does not support."},
    RuleInfo{"MF716", "hybrid-context",
             "A context parallelism that the sharding does not support."},
    RuleInfo{"MF717", "distributed-optimizer", "A setting that is overruled.", note},
    RuleInfo{"MF718", "connections-conflict",
             "Two kinds of parallelism want different hardware queues.", note},
    RuleInfo{"MF719", "accumulation-fusion",
             "Fused accumulation that may add where it must overwrite.", note},
    RuleInfo{"MF720", "torch-fsdp2",
             "A setting that PyTorch's FSDP2 does not support in Megatron-LM."},
    RuleInfo{"MF721", "async-save", "A checkpoint format that is not saved beside training."},
    RuleInfo{"MF722", "unsharded", "Sharding is asked for by half of the settings that it takes.",
             note},
    RuleInfo{"MF723", "version-2-optimizer", "An optimizer that version 2 refuses."},
    RuleInfo{"MF724", "expert-overlap", "A buffer or graphs that overlapped experts exclude."},
    RuleInfo{"MF725", "precision-aware", "An optimizer without what its precision needs."},
    RuleInfo{"MF726", "version-2-limits", "A setting that version 2 refuses."},
    RuleInfo{"MF727", "activation-offload", "A setting that offloaded activations exclude."},
    RuleInfo{"MF728", "gather-of-whole-weights", "Gathers are to overlap where there are none."},
    RuleInfo{"MF729", "unknown-version", "A version of Megatron-FSDP that does not exist."},
    RuleInfo{"MF730", "buckets", "Buckets by number and by size, or fewer than one."},
    RuleInfo{"MF731", "device-connections", "All streams share one hardware queue."},
    RuleInfo{"MF732", "expandable-segments", "An allocator whose memory NCCL cannot register."},
    RuleInfo{"MF733", "implicit-launch-order",
             "Communicators whose launches nothing keeps in one order.", note},
    RuleInfo{"MF734", "launch-blocking", "Every launch of a kernel waits for its end.", note},
    RuleInfo{"MF735", "blocking-wait", "The host waits for every collective.", note},
    RuleInfo{"MF736", "record-streams", "A variable that no longer has an effect.", note},
    RuleInfo{"MF737", "nvlink-sharp", "NVLink SHARP is switched off where it would save most.",
             note},
    RuleInfo{"MF738", "transport-off", "A transport of NCCL is switched off.", note},
    RuleInfo{"MF739", "no-symmetric-memory",
             "Memory that symmetric registration needs is switched off.", note},
    RuleInfo{"MF740", "deterministic-algorithm",
             "Deterministic training with any algorithm of NCCL."},
    RuleInfo{"MF741", "tensor-shares", "Sizes that tensor-parallel ranks cannot share equally."},
    RuleInfo{"MF742", "context-shares", "Sizes that context-parallel ranks cannot share equally."},
    RuleInfo{"MF743", "ring-window", "A ring of ranks where attention has a sliding window."},
    RuleInfo{"MF744", "overlap-without-rows",
             "Tensor-parallel collectives are to overlap without sequence parallelism."},
    RuleInfo{"MF745", "rows-without-ranks", "Sequence parallelism on one tensor-parallel rank.",
             note},
    RuleInfo{"MF746", "rank-count", "A number of ranks that is none."},
    RuleInfo{"MF747", "cp-exchange", "A value of cp_comm_type that is none."},
    RuleInfo{"MF748", "launched-ranks", "Processes that parallel axes do not divide."},
    RuleInfo{"MF751", "no-prefetch", "No gather can hide.", note},
    RuleInfo{"MF752", "one-gradient-slot", "Backward waits for each reduction.", note},
    RuleInfo{"MF801", "not-launched", "A run left out an op of its plan."},
    RuleInfo{"MF802", "not-planned", "A run launched what its plan does not have."},
    RuleInfo{"MF803", "issue-order", "A run's host issued ops in another order than the plan's."},
    RuleInfo{"MF804", "wrong-stream", "An op ran on another stream than the plan's."},
    RuleInfo{"MF805", "stream-order", "An op began before the op before it on its stream ended."},
    RuleInfo{"MF806", "early", "An op did not wait for the end of what it has to wait for."},
    RuleInfo{"MF807", "communicator-overlap",
             "Two collectives of one communicator ran concurrently."},
    RuleInfo{"MF808", "no-meeting", "A collective ended before all of its ranks had begun it."},
    RuleInfo{"MF809", "impossible-times", "An op that ended before it began, or began unissued."},
    RuleInfo{"MF810", "copy-engine-fallback",
             "Gathers that were to go by copy engines ran as kernels."},
    RuleInfo{"MF811", "allocator-retry",
             "Within a step the allocator gave memory back to the driver and asked again."},
    RuleInfo{"MF812", "allocator-growth",
             "Within a step the allocator asked the driver for memory.", note},
    RuleInfo{"MF813", "serialised-gather",
             "A gather waited for a reduction of another communicator that nothing orders before "
             "it."},
    RuleInfo{
        "MF814", "reduction-stream",
        "A reduction of gradients ran on the stream of compute or of gathers, and held it up."},
    RuleInfo{"MF815", "unlike-calls",
             "Ranks call different collectives at one place of a group's order."},
    RuleInfo{"MF816", "unlike-sizes", "Ranks call one collective with sizes or types that differ."},
    RuleInfo{"MF817", "not-joined", "A rank did not launch a collective that others launched."},
    RuleInfo{"MF818", "unfinished",
             "A collective has not ended, though each rank that left a record launched it."},
    RuleInfo{"MF819", "waiting-cycle", "Ranks wait for each other in collectives of their groups."},
};

}  // namespace

std::span<const RuleInfo> rules() { return kRules; }

const RuleInfo* find_rule(std::string_view id) {
  const auto* found = std::ranges::find(kRules, id, &RuleInfo::id);
  return found == kRules.end() ? nullptr : found;
}

std::string title_of_rule(std::string_view rule) {
  const RuleInfo* info = find_rule(rule);
  return info == nullptr ? std::string(rule) : fmt::format("{} {}", rule, info->name);
}

Finding finding_without_ops(std::string_view rule, std::string message) {
  Finding finding;
  finding.rule = rule;
  finding.message = std::move(message);
  return finding;
}

void RuleVerdict::add(RuleVerdict other) {
  std::ranges::move(other.findings, std::back_inserter(findings));
  std::ranges::move(other.not_judged, std::back_inserter(not_judged));
}

bool RuleVerdict::good() const { return not_judged.empty() && !has_errors(findings); }

bool is_error(std::string_view rule) {
  const RuleInfo* found = find_rule(rule);
  return found == nullptr || found->severity == error;
}

bool has_errors(std::span<const Finding> findings) {
  return std::ranges::any_of(findings,
                             [](const Finding& finding) { return is_error(finding.rule); });
}

}  // namespace mfsdp
