// Two edits of a plan that are to hide each other: a lie and what would have told it, a shift and
// the shift that compensates for it, two exchanges that each undo half of the other.
//
// Some pairs leave a plan that is right: two buffers that are exchanged in every op. That is for
// the judges to say (mutate_fields.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"
#include "verify/mutation/field_mutants.hpp"

namespace mfsdp {

/// The patterns' names: "access read, wait dropped".
[[nodiscard]] std::span<const std::string_view> edit_pairs();

/// `per_pattern` draws of each pattern, all different; fewer where the plan has no place for them.
/// A mutant's field is the pattern's name. A function of these three.
[[nodiscard]] std::vector<FieldMutant> pair_mutants(const Program& program, std::size_t per_pattern,
                                                    std::uint64_t seed);

}  // namespace mfsdp
