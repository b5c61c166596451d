// Races and lifetimes: every two accesses to the same bytes, one of them a write, are ordered, and
// a transient buffer is touched only between its acquire and its release.
//
// Acquire and release write all of their buffer, in the pool: two buffers that share bytes meet
// there. Instances are taken in host order, which no ordering goes against, so that it is enough to
// look back:
//
//   acquire   of bytes whose last owner is live: MF103; released, but not surely yet: MF101
//   use       of a buffer that is not live: MF102
//   release   that does not follow every use: MF101
//
// Inside a buffer, the parts that accesses distinguish are cells, each with its last write and the last read
// of every chain since (FastTrack's epochs). A conflict there, by spans, only makes a buffer
// suspect: its accesses are then compared pair by pair and exactly (overlap.hpp), on every rank.
// Complete: a plan is silent here exactly if no interleaving of the unrolled steps has a race, by
// the ranges that overlap.hpp states. Buffers that one stream alone touches need no cells.
#pragma once

#include <optional>
#include <span>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/accesses.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// MF006, MF101, MF102, MF103, MF106 and MF107 of one plan.
void check_races(const UnrolledPlan& unrolled, const AccessTable& table, FindingList& findings);

/// Two persistent buffers in one place (MF103), for all plans.
void check_persistent_places(const Program& program, FindingList& findings);

/// The host's access to the port of a copy, on the host's chain: it fills the source (h2d) or reads
/// the destination (d2h). Nothing for a copy without a port. `of_copy` are the accesses of that
/// copy.
[[nodiscard]] std::optional<ByteAccess> host_access(const Program& program, const Copy& copy,
                                                    std::span<const ByteAccess> of_copy);

}  // namespace mfsdp
