#include "gpu_backend/tool/run_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "core/base/atomic_file.hpp"
#include "core/base/quantity.hpp"
#include "core/base/text.hpp"
#include "core/cli/scenarios.hpp"
#include "core/formats/safetensors.hpp"
#include "gpu_backend/train/data/mixture.hpp"
#include "gpu_backend/train/eval_logits.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

Result<std::unique_ptr<Dataset>> open(const std::string& path, const ExecOptions& options,
                                      const DatasetSettings& settings) {
  if (path == kSynthetic)
    return synthetic_dataset(static_cast<std::uint64_t>(options.seed), settings);
  return open_dataset(path, settings);
}

/// All of --data: one data set, or a mixture.
Result<std::unique_ptr<Dataset>> open_all(const ExecOptions& options,
                                          const DatasetSettings& settings) {
  const std::vector<DataFlag>& flags = options.data.data;
  if (flags.size() == 1) return open(flags.front().path, options, settings);
  std::vector<MixturePart> parts;
  for (const DataFlag& flag : flags) {
    MFSDP_LET(data, open(flag.path, options, settings));
    parts.push_back({.data = std::move(data), .weight = flag.weight, .name = flag.path});
  }
  return mix(std::move(parts));
}

/// Whether any of the data is text, which needs a tokenizer.
Result<bool> reads_text(const ExecOptions& options) {
  std::vector<std::string> paths;
  for (const DataFlag& flag : options.data.data) paths.push_back(flag.path);
  if (options.eval_data) paths.push_back(*options.eval_data);
  for (const std::string& path : paths) {
    if (path == kSynthetic) continue;
    MFSDP_LET(is_text, holds_text(path));
    if (is_text) return true;
  }
  return false;
}

/// The folder of the run's model, if it has a tokenizer.json.
std::optional<fs::path> tokenizer_beside(const fs::path& model) {
  std::error_code ignored;
  const fs::path folder = fs::is_directory(model, ignored) ? model : model.parent_path();
  const fs::path file = folder / "tokenizer.json";
  return fs::is_regular_file(file, ignored) ? std::optional(file) : std::nullopt;
}

/// Warnings if text is read as bytes although the model has a tokenizer.
std::vector<std::string> warnings_of_bytes(const ExecOptions& options) {
  if (options.data.tokenizer) return {};  // the user chose it
  if (options.init_from)
    return {
        fmt::format("{} has no tokenizer.json: text is read as bytes, which its weights may "
                    "not know; --tokenizer names a tokenizer, or bytes",
                    printable(*options.init_from))};
  const std::string& model = options.common.model;
  const bool is_path = model.find('/') != std::string::npos;
  if (const auto file = is_path ? tokenizer_beside(model) : std::nullopt)
    return {fmt::format("text is read as bytes, though there is {}: --tokenizer names it, or bytes",
                        printable(file->string()))};
  return {};
}

/// The file or folder that --tokenizer names. A name without '/' that is no file may be that of a
/// small one in scenarios/tokenizers.
fs::path tokenizer_called(const std::string& name) {
  std::error_code ignored;
  const bool is_plain = name.find('/') == std::string::npos && !fs::exists(name, ignored);
  if (!is_plain) return name;
  const auto scenarios = scenarios_dir();
  if (!scenarios) return name;
  const fs::path built_in = *scenarios / "tokenizers" / name;
  return fs::exists(built_in, ignored) ? built_in : fs::path(name);
}

/// From --tokenizer, or from the folder of --init-from; null for bytes.
Result<std::shared_ptr<const TextForm>> open_text(const ExecOptions& options) {
  std::optional<fs::path> path;
  if (options.data.tokenizer) {
    if (*options.data.tokenizer != kByteTokens) path = tokenizer_called(*options.data.tokenizer);
  } else if (options.init_from) {
    path = tokenizer_beside(fs::path(*options.init_from) / "");
  }
  if (!path) {
    if (options.data.chat_template)
      return fail("--chat-template", "needs a tokenizer: --tokenizer names it");
    return nullptr;
  }
  std::optional<ChatTemplate> chat;
  if (options.data.chat_template) {
    MFSDP_LET(named, parse_choice<ChatTemplate>(*options.data.chat_template, "--chat-template"));
    chat = named;
  }
  MFSDP_LET(form, open_text_form(*path, chat));
  return std::make_shared<const TextForm>(std::move(form));
}

Result<void> find_text(const ExecOptions& options, const PlanConfig& config, RunInputs& inputs) {
  MFSDP_LET(is_text, reads_text(options));
  if (!is_text) return {};
  MFSDP_LET(text, open_text(options));
  inputs.text = text;
  if (!text) {
    inputs.warnings = warnings_of_bytes(options);
  } else if (text->tokenizer->size() > config.model.vocab) {
    inputs.warnings.push_back(fmt::format(
        "{} has tokens up to {}, the model's vocabulary ends at {}: text with the "
        "others is refused",
        printable(text->tokenizer->name()), text->tokenizer->size() - 1, config.model.vocab - 1));
  }
  return {};
}

/// Data with separate documents need a plan that masks attention between them.
Result<void> check_documents(const ExecOptions& options, const PlanConfig& config) {
  if (config.document_mask || (!options.data.packs && !options.data.document_end)) return {};
  return fail(options.data.packs ? "--pack" : "--document-end",
              "needs a --plan that was made with --document-mask");
}

/// The number of steps that read all samples `epochs` times, with a full last step.
Result<std::int64_t> steps_of_epochs(const Dataset& data, const ExecOptions& options,
                                     const PlanConfig& config) {
  constexpr std::int64_t kMostSteps = 1'000'000'000;
  const auto is_endless = [](const DataFlag& flag) { return flag.path == kSynthetic; };
  if (std::ranges::any_of(options.data.data, is_endless))
    return fail("--epochs", "needs data with an end, synthetic has none: --steps");
  const Int128 samples = Int128{data.samples()} * *options.data.epochs;
  const Int128 steps = (samples + config.global_batch() - 1) / config.global_batch();
  if (steps > kMostSteps)
    return fail("--epochs",
                fmt::format("{} are more than {} steps", *options.data.epochs, kMostSteps));
  return static_cast<std::int64_t>(steps);
}

TrainSettings settings_of(const ExecOptions& options, const PlanConfig& config) {
  return {.steps = options.steps,
          .learning_rate = {.peak = options.learning_rate,
                            .minimum = options.lowest_rate(),
                            .warmup = options.warmup_steps(),
                            .schedule = options.schedule,
                            .decay = options.decay_steps()},
          .optimizer = {.beta1 = options.beta1,
                        .beta2 = options.beta2.value_or(spec_of(config.optimizer).beta2),
                        .epsilon = options.epsilon,
                        .weight_decay = options.weight_decay,
                        .momentum = options.momentum},
          .seed = static_cast<std::uint64_t>(options.seed),
          .eval_every = options.eval_every,
          .eval_samples = checked_mul(options.eval_batches, config.global_batch()),
          .log_param_norms = options.log_param_norms ? options.log_every : 0,
          .check_nan = options.check_nan};
}

Result<void> write_logits(const std::string& path, const EvalLogits& logits) {
  const TensorShape tensor{.name = "logits", .dtype = logits.dtype, .shape = logits.shape};
  MFSDP_LET(file, AtomicFile::create(path));
  MFSDP_TRY(file.write(safetensors_header({&tensor, 1}, {})));
  MFSDP_TRY(
      file.write({reinterpret_cast<const char*>(logits.values.data()), logits.values.size()}));
  return file.commit();
}

}  // namespace

TrainInputs RunInputs::train_inputs() const {
  TrainInputs inputs{.settings = settings,
                     .data = data.get(),
                     .eval_data = eval_data.get(),
                     .weights = initial ? &*initial : nullptr,
                     .adapters = adapters ? &*adapters : nullptr};
  if (logits)
    inputs.take_logits = [path = *logits](const EvalLogits& l) { return write_logits(path, l); };
  return inputs;
}

Result<RunInputs> open_run_inputs(const ExecOptions& asked, const Program& program) {
  const PlanConfig& config = program.config;
  ExecOptions options = asked;
  RunInputs inputs;
  MFSDP_TRY(check_documents(options, config));
  MFSDP_TRY(find_text(options, config, inputs));
  DatasetSettings form{.vocab = config.model.vocab,
                       .seq_len = config.seq_len,
                       .text = inputs.text,
                       .packs = options.data.packs,
                       .masks = config.document_mask};
  if (options.data.document_end && *options.data.document_end >= config.model.vocab)
    return fail("--document-end", fmt::format("expected a token below the vocabulary of {}, got {}",
                                              config.model.vocab, *options.data.document_end));
  if (options.data.document_end)
    form.document_end = static_cast<std::int32_t>(*options.data.document_end);
  MFSDP_LET(data, open_all(options, form));
  inputs.data = std::move(data);
  if (options.data.epochs) {
    MFSDP_LET(steps, steps_of_epochs(*inputs.data, options, config));
    options.steps = steps;
  }
  inputs.settings = settings_of(options, config);
  if (options.eval_data) {
    MFSDP_LET(eval_data, open(*options.eval_data, options, form));
    inputs.eval_data = std::move(eval_data);
  }
  if (options.init_from) {
    MFSDP_LET(initial, HfWeights::open(*options.init_from, program));
    inputs.initial.emplace(std::move(initial));
  }
  if (options.export_to) {
    MFSDP_LET(exported, HfExport::prepare(program, *options.export_to));
    inputs.exported.push_back(std::move(exported));
  }
  if (options.init_adapters) {
    MFSDP_LET(adapters, PeftAdapters::open(*options.init_adapters, program));
    inputs.adapters.emplace(std::move(adapters));
  }
  if (options.export_adapters) {
    MFSDP_LET(exported, HfExport::prepare_adapters(program, *options.export_adapters));
    inputs.exported.push_back(std::move(exported));
  }
  inputs.logits = options.logits;
  if (inputs.logits) {
    if (program.config.mesh.size(Axis::cp) > 1)
      return fail("--logits", "expected no --cp: the first rank has only its part of a sequence");
    if (program.config.mesh.size(Axis::tp) > 1)
      return fail("--logits",
                  "expected no --tp: the first rank has only its part of the vocabulary");
    if (const auto kept = find_eval_logits(program); !kept)
      return fail("--logits", kept.error().message());
  }
  return inputs;
}

}  // namespace mfsdp
