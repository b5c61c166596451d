// Plans with the ops of passes in the segments that call them, for readers that follow the ops of a
// segment as one list.
#pragma once

#include "core/plan/job.hpp"

namespace mfsdp {

[[nodiscard]] bool has_passes(const Job& job);

/// Copies each op of a pass to each place of a call, with the lag that it has there and its id: then
/// several ops have one id. Waits of passes lose their bindings, which are those of all places. A
/// segment whose calls have a `lag_step` becomes a segment for each repetition: "drain.0", "drain.1".
/// Plans without passes are unchanged.
[[nodiscard]] Job without_passes(Job job);

}  // namespace mfsdp
