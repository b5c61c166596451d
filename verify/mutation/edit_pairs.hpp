// Pairs of edits of a plan that try to hide each other: a false statement and the removal of the op
// that would reveal it, a shift and a compensating shift, two exchanges that each undo half of the
// other.
//
// Some pairs leave a correct plan, such as two buffers that are exchanged in every op. The judges
// decide this (mutate_fields.hpp).
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

/// Draws `per_pattern` different pairs of each pattern; fewer if the plan has fewer. A mutant's
/// field is the pattern's name. The result depends only on the arguments.
[[nodiscard]] std::vector<FieldMutant> pair_mutants(const Program& program, std::size_t per_pattern,
                                                    std::uint64_t seed);

}  // namespace mfsdp
