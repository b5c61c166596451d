// Ranks of several classes, each with a plan of its own: they meet in collectives.
//
// The n-th collective of a communicator is one node that every class must reach, so the classes'
// plans become one graph. A cycle in it is a deadlock under any timing. A cycle that needs, beside,
// that launches keep the host's order from one communicator to the next is one that devices without
// room for both run into.
//
// By class, the ranks of every communicator are taken to be of all classes. compare_ranks() knows
// which rank is of which class.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"
#include "verify/proof/order/proof_settings.hpp"

namespace mfsdp {

/// Compares programs that run together, one for each class: MF201, MF202 and MF203, for every plan
/// of the first one. Each program is proved by itself first; programs with MF0xx errors are not
/// compared. Errors: those of prove(), no program, or a plan that a class lacks.
[[nodiscard]] Result<std::vector<Finding>> compare_classes(std::span<const Program> classes,
                                                           const ProofSettings& settings = {});

/// The same with every rank of the mesh by itself (rank_sequences.hpp); `class_of` names the class
/// of each. Further errors: classes of different meshes or communicators, or a class for more or
/// fewer ranks than the mesh has.
[[nodiscard]] Result<std::vector<Finding>> compare_ranks(std::span<const Program> classes,
                                                         std::span<const std::uint32_t> class_of,
                                                         const ProofSettings& settings = {});

}  // namespace mfsdp
