// Plans of several classes of ranks that are shipped.
#pragma once

#include <stdexcept>
#include <string>

#include "core/base/read_file.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan_json.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp::test {

/// By default 1F1B of two stages and four microbatches.
inline Job pipeline(const std::string& file = "1f1b_2x4.json") {
  const std::string path = (kScenarios / "pipeline" / file).string();
  auto read = job_from_json(mfsdp::read_file(path, "a plan", std::size_t{1} << 26).value(), path);
  if (!read) throw std::runtime_error(read.error().message());
  return *std::move(read);
}

}  // namespace mfsdp::test
