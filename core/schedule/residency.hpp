// Which units' weights are gathered when.
//
// The resident set while use j runs is the next prefetch + 1 distinct units from j on. A unit is
// gathered as soon as it enters the set and released as soon as it leaves, so a unit that backward
// needs again at once (the last block, the head) stays. With prefetch 1 and two blocks:
//
//   use        e    1    2    h    2'   1'   | e (next microbatch)
//   resident  e 1  1 2  2 h  h 2  2 1  1 e   | e 1
#pragma once

#include <cstddef>
#include <vector>

namespace mfsdp::schedule {

/// A unit that is `kept` stays from its first use in a microbatch to its last one.
///
/// Per use, the resident units in the order in which they are needed. `uses` names the unit of
/// each use of a microbatch in order; with `next_follows` another microbatch comes right after.
/// The result has one entry more than `uses`: what is resident when the microbatch has ended.
[[nodiscard]] std::vector<std::vector<std::size_t>> resident_units(
    const std::vector<std::size_t>& uses, std::size_t prefetch, bool next_follows,
    const std::vector<std::size_t>& kept = {});

}  // namespace mfsdp::schedule
