// A plan written out over several steps, with what is surely ordered before what.
//
// Chains: one per stream, in the order of Program::streams, and the host's, which comes last. Every
// instance of an op belongs to one chain and has a position there. Its clock counts, for each other
// chain, the instances that have surely ended before it begins; streams and host are few, so a
// clock is a handful of numbers, and instances between two waits share one.
//
//   instance       host order     chain        position   clock (compute, all_gather, host)
//   AG e           0              all_gather   0          0 0 0
//   record g       1              all_gather   1          0 0 0
//   wait g         2              compute      0          0 2 0
//   F e            3              compute      1          0 2 0
//
// Orderings: a stream runs its ops one after the other; a wait is for the latest record of its
// event at issue; collectives of one communicator serialise; the host waits at a host_wait, and
// before it touches the memory of a copy until the last instance of that copy has ended; an op
// begins after its issue. Collectives of a group are one launch: they share a position and are not
// ordered among themselves. Before the first step everything has ended, as between two plans; so
// what holds here holds for any sequence of plans.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "verify/findings/finding_list.hpp"
#include "verify/findings/place_names.hpp"
#include "verify/proof/order/program_index.hpp"
#include "verify/proof/order/proof_settings.hpp"

namespace mfsdp {

/// No instance.
inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// Kind and subject of an op in a few bytes. Loops over all instances read these: the op itself
/// with its operands is a kilobyte, and far away.
struct OpFacts {
  OpKind kind = OpKind::kernel;
  std::uint16_t chain = 0;  ///< of its stream
  /// Position of the event of a record or wait, the communicator of a collective, the buffer of an
  /// acquire or release.
  std::uint32_t subject = kNone;
  std::uint32_t unit = kNone;  ///< position of the unit whose work it is
};

/// One execution of an op, or the host's work on the port of a copy.
struct Instance {
  const Op* op = nullptr;
  std::uint32_t op_index = 0;  ///< position among all ops of the plan
  std::uint32_t run = 0;       ///< position in UnrolledPlan::runs
  std::uint32_t position = 0;  ///< in its chain
  std::uint32_t clock = 0;     ///< which clock; instances may share one
  /// A wait's record, or the last collective of the communicator before this one.
  std::uint32_t source = kNone;
  std::uint16_t chain = 0;
  /// The host fills the source of copy `op` (h2d), or reads the result of its last instance (d2h);
  /// it is before the copy's own instance.
  bool host_work = false;
};

/// One run of a list of ops (core/plan/instances.hpp): a segment's own, or those of a pass that it
/// calls. A repetition of a segment is one run or, if it calls passes, one for each call.
struct ListRun {
  std::size_t segment = 0;
  std::int64_t step = 0;
  std::int64_t repetition = 0;
  std::size_t first = 0;    ///< instance; the run ends where the next one begins
  std::uint32_t head = 0;   ///< the first run of its repetition
  std::uint32_t list = 0;   ///< number of the list, the same for all variants of a pass
  std::int64_t number = 0;  ///< which run of that list, over all steps
  std::int64_t before = 0;  ///< microbatches that began in earlier steps
  std::int64_t begun = 0;   ///< in this step, with those that begin in this repetition
  std::int64_t lag = 0;     ///< of the call in this repetition
  bool for_more = false;    ///< it stands for repetitions that are not unrolled, too
};

/// The runs of a segment that are one segment of an unfolded plan (unfolded_program.hpp).
struct SegmentRun {
  std::size_t segment = 0;
  std::int64_t repetition = 0;  ///< the first of them
  std::int64_t times = 1;       ///< how many they are
};

struct UnrolledPlan {
  const Program* program = nullptr;
  const ProgramIndex* index = nullptr;
  const Plan* plan = nullptr;
  std::vector<OpFacts> ops;  ///< by op
  std::vector<ListRun> runs;
  std::vector<Instance> instances;  ///< in host order, which no ordering goes against
  std::uint32_t chains = 0;         ///< streams and host
  std::uint32_t width = 0;          ///< numbers per clock: chains, rounded up
  std::vector<std::uint32_t> clocks;
  std::vector<OpId> redundant_waits;       ///< no instance of which orders anything new; ascending
  bool lags = false;                       ///< some op works on a microbatch before the newest
  std::span<const SegmentRun> unfolded{};  ///< by segment of an unfolded plan

  [[nodiscard]] std::uint32_t host_chain() const { return chains - 1; }
  [[nodiscard]] const OpFacts& facts(std::size_t i) const { return ops[instances[i].op_index]; }
  /// The clock of instance `i`, by chain. The number of its own chain may be too small.
  [[nodiscard]] std::span<const std::uint32_t> clock(std::size_t i) const {
    return std::span(clocks).subspan(std::size_t{instances[i].clock} * width, chains);
  }
  /// Whether instance a surely ends before instance b begins.
  [[nodiscard]] bool before(std::size_t a, std::size_t b) const {
    const Instance& x = instances[a];
    const Instance& y = instances[b];
    return x.chain == y.chain ? x.position < y.position : clock(b)[x.chain] > x.position;
  }
  /// The first run of the repetition that an instance belongs to.
  [[nodiscard]] std::uint32_t head_of(std::size_t i) const { return runs[instances[i].run].head; }
  /// How many microbatches before the newest one an instance works on.
  [[nodiscard]] std::int64_t lag_of(std::size_t i) const {
    return runs[instances[i].run].lag + instances[i].op->lag;
  }
  /// The first run of the repetition that began the microbatch on which an instance works. Without
  /// lags, head_of().
  [[nodiscard]] std::uint32_t work_run(std::size_t i) const;
  [[nodiscard]] bool ordered(std::size_t a, std::size_t b) const {
    return before(a, b) || before(b, a);
  }
};

/// Unrolls a plan whose ids resolve without structure_faults(). `unfolded`: by segment, if it is a
/// unfolded plan; else empty. MF104: waits for an event that
/// nothing has recorded. MF105: waits that get another record than they are bound to. MF108: copies
/// between host and device without a record after them.
[[nodiscard]] UnrolledPlan unroll(const Program& program, const ProgramIndex& index,
                                  const Plan& plan, const ProofSettings& settings,
                                  FindingList& findings, std::span<const SegmentRun> unfolded = {});

/// An instance in words.
[[nodiscard]] Place place_of(const UnrolledPlan& unrolled, std::size_t instance);

/// A finding at an instance: "name (stream) in step 1 WHAT".
[[nodiscard]] Finding finding_in_step(const UnrolledPlan& unrolled, std::size_t instance,
                                      std::string rule, std::string_view what);

}  // namespace mfsdp
