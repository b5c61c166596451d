// Where the models, GPUs and clusters are that come with the tools.
#pragma once

#include <filesystem>

namespace mfsdp::test {

inline const std::filesystem::path kScenarios =
    std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios";
inline const std::filesystem::path kModels = kScenarios / "models";
inline const std::filesystem::path kGpus = kScenarios / "gpus";
inline const std::filesystem::path kClusters = kScenarios / "clusters";

}  // namespace mfsdp::test
