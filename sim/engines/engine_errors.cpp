#include "sim/engines/engine_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

/// GPUs on which runs were compared with predictions, and their names in messages.
constexpr std::array<std::string_view, 2> kCompared{"h100", "h200"};
constexpr std::string_view kComparedText = "H100 and H200";

/// GEMMs of the model code in those runs (gpu_lab/engines/llama.py). Other code for the same model
/// allocates differently.
constexpr std::string_view kModelCode =
    "models with fused QKV and gate-up GEMMs; other model code: not known";

/// scenarios/fidelity/fsdp2_transformers_1xh200.csv. Device memory was not measured.
const EngineErrors kOfTransformers{
    .allocated = 0.0015,
    .reserved = 0.06,
    .device = 0.06,
    .source = "at worst of 9 runs of transformers' models on one H200, PyTorch 2.11"};

}  // namespace

std::optional<EngineErrors> engine_errors(EngineKind engine, const PlanConfig& config,
                                          std::string_view gpu, const EngineOptions& options) {
  const EngineTraits& traits = traits_of(engine);
  if (config.model.family == Family::gpt2) return std::nullopt;
  if (traits.family == EngineFamily::fsdp2 && config.main_dtype != DType::fp32) return std::nullopt;
  if (options == EngineOptions{.modules = Modules::transformers} && gpu == "h200")
    return kOfTransformers;
  if (options != EngineOptions{}) return std::nullopt;
  const bool is_tied = config.model.tied_embeddings && traits.errors_of_tied.is_known();
  const ErrorBand& band = is_tied ? traits.errors_of_tied : traits.errors;
  if (!band.is_known() || std::ranges::find(kCompared, gpu) == kCompared.end()) return std::nullopt;
  return EngineErrors{
      .allocated = band.allocated,
      .reserved = band.reserved,
      .device = band.device,
      .source = fmt::format(fmt::runtime(band.source), fmt::arg("gpus", kComparedText),
                            fmt::arg("code", kModelCode))};
}

std::string unknown_memory_error(EngineKind engine, std::string_view gpu,
                                 const EngineOptions& options) {
  if (const std::string flags = flag_text(options); !flags.empty())
    return fmt::format("memory error: not known; no run of {} with {} was compared",
                       to_string(engine), flags);
  if (!traits_of(engine).errors.is_known())
    return fmt::format("memory error: not known for {}", to_string(engine));
  return fmt::format("memory error: not known on {}; {} was compared with runs on {} alone", gpu,
                     to_string(engine), kComparedText);
}

}  // namespace mfsdp
