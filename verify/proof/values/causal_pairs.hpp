// Whether ranks that share sequences compute each causal pair once.
#pragma once

#include <optional>
#include <string>

#include "core/plan/mesh.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// Ranks of cp have two chunks of each sequence each, and the keys of all, at once or one rank's at
/// a time. `part`: the attribute of
/// an attention kernel that states which chunks. A message where some pair of a chunk of queries and
/// a chunk of keys that it sees is on no rank, or on several; else nothing.
[[nodiscard]] std::optional<std::string> wrong_pairs(const Attribute& part, const Mesh& mesh);

}  // namespace mfsdp
