// Decides which units' weights are gathered when.
//
// The resident set while use j runs is the next prefetch + 1 distinct units from j on. A unit is
// gathered as soon as it enters the set and released as soon as it leaves. A unit that backward
// needs immediately (the last block, the head) stays gathered. With prefetch 1 and two blocks:
//
//   use        e    1    2    h    2'   1'   | e (next microbatch)
//   resident  e 1  1 2  2 h  h 2  2 1  1 e   | e 1
#pragma once

#include <cstddef>
#include <vector>

namespace mfsdp::schedule {

/// A unit in `kept` stays gathered from its first to its last use in a microbatch.
///
/// The resident units of each use, in the order in which they are needed. `uses` has the unit of
/// each use of a microbatch; with `next_follows` another microbatch comes next. The result has one
/// more entry than `uses`: the resident units at the end of the microbatch.
[[nodiscard]] std::vector<std::vector<std::size_t>> resident_units(
    const std::vector<std::size_t>& uses, std::size_t prefetch, bool next_follows,
    const std::vector<std::size_t>& kept = {});

}  // namespace mfsdp::schedule
