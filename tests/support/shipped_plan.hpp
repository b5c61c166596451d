// Plans that come with the tools, as programs of one class.
#pragma once

#include <filesystem>

#include "core/base/read_file.hpp"
#include "core/plan/plan_json.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp::test {

/// The plan of a file in scenarios/.
inline Program shipped_plan(const std::filesystem::path& file) {
  const std::string path = (kScenarios / file).string();
  return program_from_json(read_file(path, "a plan", std::size_t{1} << 24).value(), path).value();
}

}  // namespace mfsdp::test
