// A program whose buffers or events have instances, with each instance as a buffer or event of its
// own. A list of ops that uses other instances from one call to the next has several variants:
//
//   of the program                       unfolded: `forward` has period 2
//   steady x 5   calls forward, lag 0    steady   calls variant 0 of forward    repetition 0
//                                        steady   calls variant 1 of forward    repetition 1
//                                        steady   calls variant 0 of forward    repetition 2  ...
//
// The period of a list is the least common multiple of the instances of all that its ops use. Calls
// whose microbatches differ by a multiple of it use the same instances and share a variant. So each
// op is copied once for each variant, however many microbatches a step has. Each variant is a pass,
// and each repetition of a segment is a segment, which calls variants. A proof of the unfolded
// program is one of the program.
//
// Where a segment has many repetitions, some are left out. A proof needs twice the number of
// repetitions after which all instances begin again, and those that the lags of ops reach back. The
// repetitions that are left out are a multiple of that number, and come before the last of them.
// docs/how/proofs.md has the reason why the others are enough.
#pragma once

#include <unordered_map>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Whether ops of a repeated segment work on other microbatches, or use other buffers and events,
/// from one repetition to the next.
[[nodiscard]] bool has_rotation(const Program& program);

enum class Repetitions {
  enough,  ///< for what is proved of one rank
  /// For what ranks of several classes do together, whose segments differ. Segments do not state
  /// what is live at their ends.
  all
};

struct UnfoldedProgram {
  Program program;
  std::unordered_map<BufferId, BufferId> buffers{};  ///< instances with another id: the program's
  std::vector<std::vector<SegmentRun>> runs{};       ///< by plan, for each of its segments

  /// Names buffers as the program does.
  void restore(Finding& finding) const;
};

/// Requires that the program's ids resolve (core/plan/structure_faults.hpp). Ops keep their ids in
/// all variants. First instances keep theirs; the names of others end in their number: "data[1]". The
/// error is a program with too many variants.
[[nodiscard]] Result<UnfoldedProgram> unfolded_program(
    const Program& program, Repetitions repetitions = Repetitions::enough);

}  // namespace mfsdp
