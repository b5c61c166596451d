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

Result<PredictionKind> read_kind(const CsvTable& table, std::size_t row) {
  PredictionKind kind;
  for (const auto& [column, cell] : {std::pair{"engine", &kind.engine},
                                     {"family", &kind.family},
                                     {"training", &kind.training},
                                     {"gpu", &kind.gpu}}) {
    MFSDP_SET(*cell, text_cell(table, row, column));
  }
  // Options follow the engine's name. A cell has no commas: "block;ends" is block,ends.
  std::ranges::replace(kind.engine, ';', ',');
  if (!parse<EngineKind>(kind.engine.substr(0, kind.engine.find(' '))))
    return fail(table.place(row), "engine: expected one of " + name_list<EngineKind>());
  return kind;
}

Result<OwnBytes> read_bytes(const CsvTable& table, std::size_t row, const std::string& column) {
  OwnBytes bytes;
  MFSDP_SET(bytes.measured, number_cell(table, row, column));
  MFSDP_SET(bytes.predicted, number_cell(table, row, "predicted_" + column));
  return bytes;
}

/// None where the cell is empty.
Result<std::optional<OwnBytes>> read_known_bytes(const CsvTable& table, std::size_t row,
                                                 const std::string& column) {
  MFSDP_LET(text, text_cell(table, row, column));
  if (text.empty()) return std::nullopt;
  return read_bytes(table, row, column);
}

double rounded_up(double error) {
  constexpr double kTenths = 1000;
  constexpr double kOfQuotients = 1e-9;  // a quotient of 0.02 may be a little more
  return std::ceil(std::max(error, 1 / kTenths) * kTenths - kOfQuotients) / kTenths;
}

constexpr std::string_view kMended = "mended";

void add_bytes(ErrorOfRuns& error, const OwnBytes& bytes) {
  error.add(bytes.measured, bytes.predicted);
}

}  // namespace

std::string engine_text(const PredictionKind& kind) {
  const std::size_t end = std::min(kind.engine.find(' '), kind.engine.size());
  return std::string(shown_engine(kind.engine.substr(0, end))) + kind.engine.substr(end);
}

std::string model_text(const PredictionKind& kind) {
  const std::string usual(to_string(Optimizer::adamw));
  return kind.training == usual ? kind.family : fmt::format("{}, {}", kind.family, kind.training);
}

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
  if (config.main_dtype != DType::fp32)
    extras.push_back(fmt::format("{} weights between steps", to_string(config.main_dtype)));
  if (config.state_dtype != StateDtype::full)
    extras.push_back(fmt::format("{} states", to_string(config.state_dtype)));
  if (config.fp8 == Fp8Recipe::current)
    extras.emplace_back(config.fp8_gather ? "FP8 gathered" : "FP8");
  else if (config.has_fp8())
    extras.push_back(fmt::format("FP8 {}", to_string(config.fp8)));
  if (config.has_lora())
    extras.emplace_back(config.base_dtype == BaseDType::compute ? "LoRA" : "LoRA on a base of nf4");
  if (!config.frozen.empty()) extras.emplace_back("frozen parameters");
  if (config.document_mask) extras.emplace_back("document masks");
  if (config.exact_sums) extras.emplace_back("exact sums");
  if (config.mesh.size(Axis::pp) > 1) extras.emplace_back("pipeline stages");
  if (config.mesh.size(Axis::tp) > 1) extras.emplace_back("tensor parallelism");
  if (config.mesh.size(Axis::cp) > 1) extras.emplace_back("context parallelism");
  return with(to_string(config.optimizer), extras);
}

std::string gpu_class(const Gpu& gpu) {
  std::string text = gpu.name;
  if (gpu.power && gpu.power->own != gpu.power->tables)
    text += fmt::format(" at {:.0f} W", gpu.power->own);
  if (!gpu.published_prices.empty()) text += " with published tables";
  return text;
}

PredictionKind memory_kind(EngineKind engine, const EngineOptions& options,
                           const PlanConfig& config, const Gpu& gpu) {
  const std::string changes = options.changes(engine);
  return {.engine = fmt::format("{}{}{}", stored_name(engine), changes.empty() ? "" : " ", changes),
          .family = family_class(config.model),
          .training = training_class(config),
          .gpu = gpu.name};
}

PredictionKind prediction_kind(EngineKind engine, const EngineOptions& options,
                               const PlanConfig& config, const Gpu& gpu) {
  PredictionKind kind = memory_kind(engine, options, config, gpu);
  kind.gpu = gpu_class(gpu);
  return kind;
}

Result<std::vector<OwnStep>> load_own_steps(const std::filesystem::path& file) {
  MFSDP_LET(table, read_table(file));
  std::vector<OwnStep> steps;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    OwnStep step;
    MFSDP_SET(step.kind, read_kind(table, row));
    MFSDP_SET(step.model, text_cell(table, row, "model"));
    MFSDP_SET(step.gpus, integer_cell(table, row, "gpus"));
    MFSDP_SET(step.measured_ms, number_cell(table, row, "measured_ms"));
    MFSDP_SET(step.predicted_ms, number_cell(table, row, "predicted_ms"));
    MFSDP_LET(when, text_cell(table, row, "when"));
    step.is_mended = when == kMended;
    steps.push_back(std::move(step));
  }
  return steps;
}

Result<std::vector<OwnMemory>> load_own_memory(const std::filesystem::path& file) {
  MFSDP_LET(table, read_table(file));
  std::vector<OwnMemory> rows;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    OwnMemory memory;
    MFSDP_SET(memory.kind, read_kind(table, row));
    MFSDP_SET(memory.model, text_cell(table, row, "model"));
    MFSDP_SET(memory.allocated, read_bytes(table, row, "allocated"));
    MFSDP_SET(memory.reserved, read_known_bytes(table, row, "reserved"));
    MFSDP_SET(memory.device, read_known_bytes(table, row, "device"));
    MFSDP_LET(when, text_cell(table, row, "when"));
    memory.is_mended = when == kMended;
    rows.push_back(std::move(memory));
  }
  return rows;
}

Result<OwnRuns> load_own_runs(const std::filesystem::path& folder) {
  OwnRuns runs;
  std::error_code ignored;
  if (const auto file = folder / "own_steps.csv"; std::filesystem::exists(file, ignored))
    MFSDP_SET(runs.steps, load_own_steps(file));
  if (const auto file = folder / "own_memory.csv"; std::filesystem::exists(file, ignored))
    MFSDP_SET(runs.memory, load_own_memory(file));
  return runs;
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
    error.mended += step.is_mended ? 1 : 0;
    ++error.runs;
  }
  if (error.runs == 0) return std::nullopt;
  error.mean /= static_cast<double>(error.runs);
  return error;
}

std::string own_error_text(const PredictionKind& kind, const std::optional<OwnError>& error) {
  if (!error)
    return fmt::format("step error not known: no run of {} with {} on {} was measured",
                       engine_text(kind), model_text(kind), kind.gpu);
  const std::string mended =
      error->mended == 0 ? "" : fmt::format("; {} corrected the prediction", error->mended);
  const std::string where = fmt::format("({}, {}, {}{})", engine_text(kind), model_text(kind),
                                        gpus_text(*error, kind.gpu), mended);
  if (error->runs == 1)
    return fmt::format("step error {} in 1 run {}", rounded_percent(error->mean), where);
  return fmt::format("step error {} on average, {} at worst of {} runs {}",
                     rounded_percent(error->mean), rounded_percent(error->worst), error->runs,
                     where);
}

void ErrorOfRuns::add(double measured, double predicted) {
  const double off = std::abs(predicted / measured - 1);
  ++runs;
  total += off;
  worst = std::max(worst, off);
}

OwnMemoryError own_memory_error(std::span<const OwnMemory> memory, const PredictionKind& kind) {
  OwnMemoryError error;
  for (const OwnMemory& run : memory) {
    if (run.kind != kind) continue;
    add_bytes(error.allocated, run.allocated);
    if (run.reserved) add_bytes(error.reserved, *run.reserved);
    if (run.device) add_bytes(error.device, *run.device);
    if (run.is_mended) ++error.mended;
  }
  return error;
}

std::optional<MemoryErrors> memory_band(const OwnMemoryError& error, const PredictionKind& kind) {
  if (error.reserved.runs == 0) return std::nullopt;
  const bool has_device = error.device.runs != 0;
  std::string source =
      fmt::format("at worst of {} {} ({}, {}, {}; reserved: {}; device: {})", error.allocated.runs,
                  error.allocated.runs == 1 ? "run" : "runs", engine_text(kind), model_text(kind),
                  kind.gpu, error.reserved.runs,
                  has_device ? std::to_string(error.device.runs) : "not measured, as reserved");
  if (error.mended != 0)
    source += fmt::format(", {} of which corrected the description of the engine", error.mended);
  return MemoryErrors{.allocated = rounded_up(error.allocated.worst),
                      .reserved = rounded_up(error.reserved.worst),
                      .device = rounded_up(has_device ? error.device.worst : error.reserved.worst),
                      .source = std::move(source)};
}

std::string unknown_memory_error(const PredictionKind& kind) {
  return fmt::format("memory error: not known; no run of {} with {} on {} was compared",
                     engine_text(kind), model_text(kind), kind.gpu);
}

}  // namespace mfsdp
