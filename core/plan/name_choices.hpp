// The names of enumerations in a plan's JSON.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace mfsdp {

/// By each name that an enumeration of a program has: the other names that could stand in its
/// place, of all enumerations that have it. Found from the description of programs, so that no
/// enumeration is forgotten.
[[nodiscard]] const std::map<std::string, std::vector<std::string>, std::less<>>& name_choices();

}  // namespace mfsdp
