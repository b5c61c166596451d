// Errors of our own step predictions in measured runs: scenarios/fidelity/own_steps.csv.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Properties that a run must share with a prediction so that its error applies.
struct PredictionKind {
  std::string engine;    ///< as --engine names it
  std::string family;    ///< family_class()
  std::string training;  ///< training_class()
  std::string gpu;       ///< catalogue name and unusual settings: gpu_class()

  friend bool operator==(const PredictionKind&, const PredictionKind&) = default;
};

/// Class of models with the same kernels: "llama", "gemma with windows and heads of 256",
/// "gpt_oss". Heads of 64 and 128 columns are not mentioned, as all attention was measured for
/// them.
[[nodiscard]] std::string family_class(const ModelShape& model);

/// The optimizer and other differences in training: "adamw", "muon", "adamw with LoRA".
[[nodiscard]] std::string training_class(const PlanConfig& config);

/// "h200", "h200 at 500 W", "b200 with published tables".
[[nodiscard]] std::string gpu_class(const Gpu& gpu);

[[nodiscard]] PredictionKind prediction_kind(EngineKind engine, const PlanConfig& config,
                                             const Gpu& gpu);

/// A measured step and its prediction.
struct OwnStep {
  PredictionKind kind;
  std::string model;      ///< a name of scenarios/models
  std::int64_t gpus = 0;  ///< all of one node
  double measured_ms = 0;
  double predicted_ms = 0;
};

/// The rows of a file like own_steps.csv. Errors name file and line.
[[nodiscard]] Result<std::vector<OwnStep>> load_own_steps(const std::filesystem::path& file);

/// |predicted / measured - 1| over the runs of one kind.
struct OwnError {
  std::int64_t runs = 0;
  double mean = 0;
  double worst = 0;
  std::int64_t least_gpus = 0;
  std::int64_t most_gpus = 0;
};

/// None if no run of that kind was measured.
[[nodiscard]] std::optional<OwnError> own_error(std::span<const OwnStep> steps,
                                                const PredictionKind& kind);

/// "step error 2.9 % on average, 6.9 % at worst of 12 runs (mfsdp, llama, 2 h100)", or that it is
/// not known.
[[nodiscard]] std::string own_error_text(const PredictionKind& kind,
                                         const std::optional<OwnError>& error);

}  // namespace mfsdp
