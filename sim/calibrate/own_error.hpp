// Errors of our own predictions in measured runs: own_steps.csv and own_memory.csv of
// scenarios/fidelity.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine_options.hpp"
#include "reports/record/result.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Properties that a run must share with a prediction so that its error applies.
struct PredictionKind {
  std::string engine;    ///< as results name it, with the options that are not its defaults
  std::string family;    ///< family_class()
  std::string training;  ///< training_class()
  std::string gpu;       ///< catalogue name and unusual settings: gpu_class()

  friend bool operator==(const PredictionKind&, const PredictionKind&) = default;
};

/// The engine as people give it, with its options: "megatron-fsdp-v1", "fsdp2 --bf16-loss".
[[nodiscard]] std::string engine_text(const PredictionKind& kind);
/// Models and training: "llama", "olmo2, muon".
[[nodiscard]] std::string model_text(const PredictionKind& kind);

/// Class of models with the same kernels: "llama", "gemma with windows and heads of 256",
/// "gpt_oss". Heads of 64 and 128 columns are not mentioned, as all attention was measured for
/// them.
[[nodiscard]] std::string family_class(const ModelShape& model);

/// The optimizer and other differences in training: "adamw", "muon", "adamw with LoRA".
[[nodiscard]] std::string training_class(const PlanConfig& config);

/// "h200", "h200 at 500 W", "b200 with published tables".
[[nodiscard]] std::string gpu_class(const Gpu& gpu);

[[nodiscard]] PredictionKind prediction_kind(EngineKind engine, const EngineOptions& options,
                                             const PlanConfig& config, const Gpu& gpu);

/// The same for memory, which neither power limits nor prices change.
[[nodiscard]] PredictionKind memory_kind(EngineKind engine, const EngineOptions& options,
                                         const PlanConfig& config, const Gpu& gpu);

/// A measured step and its prediction.
struct OwnStep {
  PredictionKind kind;
  std::string model;      ///< a name of scenarios/models
  std::int64_t gpus = 0;  ///< all of one node
  double measured_ms = 0;
  double predicted_ms = 0;
  bool is_mended = false;  ///< the run corrected the description of the engine
};

/// Bytes of a run, and of its prediction.
struct OwnBytes {
  double measured = 0;
  double predicted = 0;
};

/// Measured memory and its prediction. Not every run measured all of it.
struct OwnMemory {
  PredictionKind kind;
  std::string model;
  OwnBytes allocated;
  std::optional<OwnBytes> reserved;
  std::optional<OwnBytes> device;
  bool is_mended = false;  ///< the run corrected the description of the engine
};

struct OwnRuns {
  std::vector<OwnStep> steps;
  std::vector<OwnMemory> memory;
};

/// The rows of own_steps.csv and own_memory.csv in a folder; none of a file that is not there.
/// Errors name file and line.
[[nodiscard]] Result<OwnRuns> load_own_runs(const std::filesystem::path& folder);
[[nodiscard]] Result<std::vector<OwnStep>> load_own_steps(const std::filesystem::path& file);
[[nodiscard]] Result<std::vector<OwnMemory>> load_own_memory(const std::filesystem::path& file);

/// |predicted / measured - 1| over the runs of one kind.
struct OwnError {
  std::int64_t runs = 0;
  double mean = 0;
  double worst = 0;
  std::int64_t least_gpus = 0;
  std::int64_t most_gpus = 0;
  std::int64_t mended = 0;  ///< runs that corrected a price or the description of the engine
};

/// None if no run of that kind was measured.
[[nodiscard]] std::optional<OwnError> own_error(std::span<const OwnStep> steps,
                                                const PredictionKind& kind);

/// |predicted / measured - 1| over runs.
struct ErrorOfRuns {
  std::int64_t runs = 0;
  double total = 0;
  double worst = 0;

  void add(double measured, double predicted);
  [[nodiscard]] double mean() const { return total / static_cast<double>(runs); }
};

struct OwnMemoryError {
  ErrorOfRuns allocated;
  ErrorOfRuns reserved;
  ErrorOfRuns device;
  std::int64_t mended = 0;  ///< runs that corrected the description of the engine
};

/// Without runs where none of that kind was measured.
[[nodiscard]] OwnMemoryError own_memory_error(std::span<const OwnMemory> memory,
                                              const PredictionKind& kind);

/// The worst errors, rounded up to a tenth of a percent, with the number of runs. Device memory that
/// was not measured has the error of reserved memory. None without runs.
[[nodiscard]] std::optional<MemoryErrors> memory_band(const OwnMemoryError& error,
                                                      const PredictionKind& kind);

/// "memory error: not known; no run of mcore with llama on h200 was compared".
[[nodiscard]] std::string unknown_memory_error(const PredictionKind& kind);

/// "step error 2.9 % on average, 6.9 % at worst of 12 runs (mfsdp, llama, 2 h100)", or that it is
/// not known.
[[nodiscard]] std::string own_error_text(const PredictionKind& kind,
                                         const std::optional<OwnError>& error);

}  // namespace mfsdp
