// A short training run on the CPU machine with all its results, to decide whether two programs
// compute the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"

namespace mfsdp {

/// 64 bits for each result: the value, or a hash of several. Names are for messages: "step 2,
/// loss", "layers.0.mlp.up_proj.weight, exp_avg", "export, model.safetensors".
using RunBits = std::map<std::string, std::uint64_t>;

struct RunBitsSettings {
  std::int64_t steps = 3;                     ///< evaluations follow step 2 and the last step
  std::chrono::milliseconds deadline{4'000};  ///< MachineSettings::deadline
  std::filesystem::path folder;               ///< must exist; for saves and exports
};

/// One run of a job without delays: losses, norms, evaluations if it has a plan for these, weights
/// and optimizer states. Errors: those of mfsdp-exec; more ranks or memory than small plans need.
[[nodiscard]] Result<RunBits> plain_run_bits(Job job, const RunBitsSettings& settings);

/// The results of four concurrent runs, each with its own random delays, every second one in
/// poisoned memory; of a run that saves and exports; and of a run that resumes from that save.
/// Errors: the first error of these runs.
[[nodiscard]] Result<RunBits> shaken_run_bits(Job job, const RunBitsSettings& settings);

/// The same where all ranks run one program.
[[nodiscard]] inline Result<RunBits> plain_run_bits(const Program& program,
                                                    const RunBitsSettings& settings) {
  return plain_run_bits(Job{.programs = std::vector(1, program)}, settings);
}
[[nodiscard]] inline Result<RunBits> shaken_run_bits(const Program& program,
                                                     const RunBitsSettings& settings) {
  return shaken_run_bits(Job{.programs = std::vector(1, program)}, settings);
}

}  // namespace mfsdp
