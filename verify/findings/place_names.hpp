// How findings call streams and ops.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {

/// "compute", ..., by position in Program::streams, with the id where several have that role;
/// "host" for none.
[[nodiscard]] std::string stream_name(const Program& program, std::optional<std::size_t> stream);

/// The op's name, with its kind where the name alone does not tell: "wait used.w".
[[nodiscard]] std::string op_label(const Op& op);

/// "name (stream)", as messages speak of a place.
[[nodiscard]] std::string to_text(const Place& place);

}  // namespace mfsdp
