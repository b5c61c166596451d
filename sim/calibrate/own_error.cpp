#include "sim/calibrate/own_error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sim/calibrate/table_cells.hpp"

namespace mfsdp {
namespace {

std::string with(std::string_view base, const std::vector<std::string>& extras) {
  if (extras.empty()) return std::string(base);
  return fmt::format("{} with {}", base, fmt::join(extras, " and "));
}

std::string_view base_of(const ModelShape& model) {
  if (model.zero_centered_norms) return "gemma";
  if (model.family == Family::mixtral) return to_string(Family::llama);  // the same blocks
  return to_string(model.family);
}

bool has_usual_heads(const ModelShape& model) {
  return model.traits().latent_attention || model.head_dim == 64 || model.head_dim == 128;
}

std::string rounded_percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string gpus_text(const OwnError& error, const std::string& gpu) {
  if (error.least_gpus == error.most_gpus) return fmt::format("{} {}", error.least_gpus, gpu);
  return fmt::format("{} to {} {}", error.least_gpus, error.most_gpus, gpu);
}

std::string model_text(const PredictionKind& kind) {
  const std::string usual(to_string(Optimizer::adamw));
  return kind.training == usual ? kind.family : fmt::format("{}, {}", kind.family, kind.training);
}

}  // namespace

std::string family_class(const ModelShape& model) {
  std::vector<std::string> extras;
  // These families have experts in every model, and other features of their own.
  const bool brings_experts = model.traits().only_experts ? model.family != Family::mixtral
                                                          : model.family == Family::deepseek ||
                                                                model.family == Family::glm4_moe;
  if (model.experts != 0 && !brings_experts) extras.emplace_back("experts");
  if (!model.sliding_layers.empty() && model.family != Family::gpt_oss)
    extras.emplace_back("windows");
  if (model.residual_multiplier.num != 0) extras.emplace_back("scaled residuals");
  if (model.score_cap.num != 0) extras.emplace_back("logit softcaps");
  if (model.rotary_dim != 0 && !model.traits().latent_attention)
    extras.emplace_back("heads that turn in part");
  if (!model.nope_layers.empty()) extras.emplace_back("layers without RoPE");
  if (model.index_heads != 0) extras.emplace_back("sparse attention");
  if (!has_usual_heads(model)) extras.push_back(fmt::format("heads of {}", model.head_dim));
  return with(base_of(model), extras);
}

std::string training_class(const PlanConfig& config) {
  std::vector<std::string> extras;
  if (config.param_dtype != DType::bf16)
    extras.push_back(fmt::format("{} weights", to_string(config.param_dtype)));
  if (config.state_dtype != StateDtype::full)
    extras.push_back(fmt::format("{} states", to_string(config.state_dtype)));
  if (config.has_lora()) extras.emplace_back("LoRA");
  if (!config.frozen.empty()) extras.emplace_back("frozen parameters");
  if (config.document_mask) extras.emplace_back("document masks");
  if (config.exact_sums) extras.emplace_back("exact sums");
  return with(to_string(config.optimizer), extras);
}

std::string gpu_class(const Gpu& gpu) {
  std::string text = gpu.name;
  if (gpu.power && gpu.power->own != gpu.power->tables)
    text += fmt::format(" at {:.0f} W", gpu.power->own);
  if (!gpu.published_prices.empty()) text += " with published tables";
  return text;
}

PredictionKind prediction_kind(EngineKind engine, const PlanConfig& config, const Gpu& gpu) {
  return {.engine = std::string(stored_name(engine)),
          .family = family_class(config.model),
          .training = training_class(config),
          .gpu = gpu_class(gpu)};
}

Result<std::vector<OwnStep>> load_own_steps(const std::filesystem::path& file) {
  MFSDP_LET(table, read_table(file));
  std::vector<OwnStep> steps;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    OwnStep step;
    for (const auto& [column, cell] : {std::pair{"engine", &step.kind.engine},
                                       {"family", &step.kind.family},
                                       {"training", &step.kind.training},
                                       {"gpu", &step.kind.gpu},
                                       {"model", &step.model}}) {
      MFSDP_SET(*cell, text_cell(table, row, column));
    }
    // Options follow the engine's name.
    if (!parse<EngineKind>(step.kind.engine.substr(0, step.kind.engine.find(' '))))
      return fail(table.place(row), "engine: expected one of " + name_list<EngineKind>());
    MFSDP_SET(step.gpus, integer_cell(table, row, "gpus"));
    MFSDP_SET(step.measured_ms, number_cell(table, row, "measured_ms"));
    MFSDP_SET(step.predicted_ms, number_cell(table, row, "predicted_ms"));
    steps.push_back(std::move(step));
  }
  return steps;
}

std::optional<OwnError> own_error(std::span<const OwnStep> steps, const PredictionKind& kind) {
  OwnError error;
  for (const OwnStep& step : steps) {
    if (step.kind != kind) continue;
    const double off = std::abs(step.predicted_ms / step.measured_ms - 1);
    error.mean += off;
    error.worst = std::max(error.worst, off);
    error.least_gpus = error.runs == 0 ? step.gpus : std::min(error.least_gpus, step.gpus);
    error.most_gpus = std::max(error.most_gpus, step.gpus);
    ++error.runs;
  }
  if (error.runs == 0) return std::nullopt;
  error.mean /= static_cast<double>(error.runs);
  return error;
}

std::string own_error_text(const PredictionKind& kind, const std::optional<OwnError>& error) {
  if (!error)
    return fmt::format("step error not known: no run of {} with {} on {} was measured",
                       shown_engine(kind.engine), model_text(kind), kind.gpu);
  const std::string where = fmt::format("({}, {}, {})", shown_engine(kind.engine), model_text(kind),
                                        gpus_text(*error, kind.gpu));
  if (error->runs == 1)
    return fmt::format("step error {} in 1 run {}", rounded_percent(error->mean), where);
  return fmt::format("step error {} on average, {} at worst of {} runs {}",
                     rounded_percent(error->mean), rounded_percent(error->worst), error->runs,
                     where);
}

}  // namespace mfsdp
