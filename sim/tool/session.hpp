// What every action of mfsdp-sim works with.
#pragma once

#include <atomic>
#include <filesystem>
#include <ostream>
#include <string_view>

namespace mfsdp {

inline constexpr std::string_view kTool = "mfsdp-sim";

struct Session {
  std::filesystem::path scenarios;  ///< models, GPUs, clusters, measurements
  std::ostream& out;                ///< data
  std::ostream& err;                ///< talk
  const std::atomic<bool>& interrupted;
};

}  // namespace mfsdp
