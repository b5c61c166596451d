// The one structural check of a program: unknown ids, bytes outside of their buffer, numbers that
// no plan can have, groups of collectives that are no launch. The reader of plans (check.hpp)
// refuses a program with its first fault; the proofs list all of them (rules MF001 to MF005).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Streams of a program: proofs have a number for each in every clock, and tables of ops by streams
/// stay in proportion to the file.
inline constexpr std::size_t kMostPlanStreams = 63;

enum class StructureFaultKind {
  unknown_id,     ///< an id that the program does not have
  double_id,      ///< two things of one kind have one id
  out_of_bounds,  ///< an operand leaves its buffer, or a buffer its pool
  malformed,      ///< a number or list that no plan can have
  group           ///< collectives that are no launch
};

struct StructureFault {
  StructureFaultKind kind = StructureFaultKind::malformed;
  std::string where;  ///< a path into the JSON: "plans[0].segments[1].ops[4].body.wait.event"
  std::string what;
  std::optional<BufferId> buffer{};  ///< that it is about
};

/// At most `most` faults of each kind, in the order of the document. A program without any can be
/// followed: its ids resolve, and its offsets and sizes add up within 63 bits. check.hpp compares
/// it with its configuration.
[[nodiscard]] std::vector<StructureFault> structure_faults(const Program& program,
                                                           std::size_t most);

}  // namespace mfsdp
