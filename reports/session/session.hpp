// The context of every action of a tool.
#pragma once

#include <atomic>
#include <filesystem>
#include <ostream>
#include <string_view>

#include "core/cli/text_style.hpp"

namespace mfsdp {

struct Session {
  std::string_view tool;            ///< "mfsdp-sim"
  std::filesystem::path scenarios;  ///< models, GPUs, clusters, measurements
  std::ostream& out;                ///< data
  std::ostream& err;                ///< notes
  const std::atomic<bool>& interrupted;
  TextStyle style = {};  ///< of what is written to `out`
};

}  // namespace mfsdp
