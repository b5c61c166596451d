// The names of enumerations in a plan's JSON.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace mfsdp {

/// For each name in an enumeration of a program: the other names of all enumerations that have it.
/// Computed from the description of programs, so that no enumeration is missing.
[[nodiscard]] const std::map<std::string, std::vector<std::string>, std::less<>>& name_choices();

}  // namespace mfsdp
