// Expands a program whose buffers or events have instances, one after the other by microbatch:
// each
// instance becomes a buffer or an event of its own, and each run of a segment a segment. A proof of
// the expanded program is one of the program, for all repetitions.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {

[[nodiscard]] bool has_instances(const Program& program);

struct ExpandedProgram {
  /// An op of the program, in one run of its segment.
  struct Origin {
    OpId op;
    std::int64_t repetition = 0;
  };

  Program program;
  std::unordered_map<OpId, Origin> ops{};            ///< those that have another id
  std::unordered_map<BufferId, BufferId> buffers{};  ///< likewise

  /// Names ops and buffers as the program does.
  void restore(Finding& finding) const;
  /// The waits of which all runs are among these.
  [[nodiscard]] std::vector<OpId> redundant_waits(const std::vector<OpId>& of_runs) const;
};

/// Requires that the program's ids resolve (structure.hpp). First runs and first instances keep
/// their ids; the names of others end in their number: "layers.0.qkv[1]". The error is a program
/// too large to expand.
[[nodiscard]] Result<ExpandedProgram> expand_instances(const Program& program);

}  // namespace mfsdp
