// Numbers that differ by rank: value + sum of step * (the rank's index on an axis). So one plan
// serves ranks that differ in where their part begins:
//
//   vocabulary of 512 over tp 2     {"name": "vocab_begin", "value": 0, "per": [{"axis": "tp",
//                                    "step": 256}]}     0 on index 0, 256 on index 1
#pragma once

#include <cstdint>

#include "core/plan/mesh.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// The attribute's value on a rank of the world. Throws OverflowError beyond 63 bits.
[[nodiscard]] Rational value_on(const Attribute& attribute, const Mesh& mesh, std::int64_t rank);

/// Whether some attribute differs by rank.
[[nodiscard]] bool differs_by_rank(const Kernel& kernel);

/// The kernel with each attribute's value on that rank.
[[nodiscard]] Kernel kernel_on(Kernel kernel, const Mesh& mesh, std::int64_t rank);

}  // namespace mfsdp
