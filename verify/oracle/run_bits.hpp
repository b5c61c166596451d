// A short training run on the CPU's machine, and every result of it: to tell whether two programs
// compute the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// 64 bits for each result: the value itself, or a hash of many. Names are for people: "step 2,
/// loss", "layers.0.mlp.up_proj.weight, exp_avg", "export, model.safetensors".
using RunBits = std::map<std::string, std::uint64_t>;

struct RunBitsSettings {
  std::int64_t steps = 3;                     ///< the evaluation stands after step 2 and at the end
  std::chrono::milliseconds deadline{4'000};  ///< MachineSettings::deadline
  std::filesystem::path folder;               ///< exists; for saves and exports
};

/// One undisturbed run: losses, norms, evaluations, weights and optimizer states. Errors: what
/// mfsdp-exec refuses; more ranks or memory than small plans need.
[[nodiscard]] Result<RunBits> plain_run_bits(const Program& program,
                                             const RunBitsSettings& settings);

/// The results of four runs at one time, each with random delays of its own, every other one in
/// poisoned memory; of one that saves and exports, and of one that goes on from the save. Errors:
/// the first of those of the runs.
[[nodiscard]] Result<RunBits> shaken_run_bits(const Program& program,
                                              const RunBitsSettings& settings);

}  // namespace mfsdp
