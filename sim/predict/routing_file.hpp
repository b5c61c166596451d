// Files of --routing: measured tokens of each expert (docs/reference/formats.md).
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "sim/predict/routing.hpp"

namespace mfsdp {

/// JSON if the first character is a bracket, else CSV. Errors name `where`, and what was expected.
[[nodiscard]] Result<Routing> read_routing(std::string_view text, const std::string& where);

[[nodiscard]] Result<Routing> load_routing(const std::string& path);

}  // namespace mfsdp
