#include "gpu_backend/tool/run_inputs.hpp"

#include <string>
#include <utility>

#include "core/base/atomic_file.hpp"
#include "core/base/quantity.hpp"
#include "core/formats/safetensors.hpp"
#include "gpu_backend/train/eval_logits.hpp"

namespace mfsdp {
namespace {

Result<std::unique_ptr<Dataset>> open(const std::string& path, const ExecOptions& options,
                                      const DatasetSettings& settings) {
  if (path == kSynthetic)
    return synthetic_dataset(static_cast<std::uint64_t>(options.seed), settings);
  return open_dataset(path, settings);
}

TrainSettings settings_of(const ExecOptions& options, const PlanConfig& config) {
  return {.steps = options.steps,
          .learning_rate = {.peak = options.learning_rate,
                            .minimum = options.lowest_rate(),
                            .warmup = options.warmup_steps()},
          .optimizer = {.beta1 = options.beta1,
                        .beta2 = options.beta2.value_or(spec_of(config.optimizer).beta2),
                        .epsilon = options.epsilon,
                        .weight_decay = options.weight_decay},
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
                     .weights = initial ? &*initial : nullptr};
  if (logits)
    inputs.take_logits = [path = *logits](const EvalLogits& l) { return write_logits(path, l); };
  return inputs;
}

Result<RunInputs> open_run_inputs(const ExecOptions& options, const Program& program) {
  const PlanConfig& config = program.config;
  const DatasetSettings form{.vocab = config.model.vocab, .seq_len = config.seq_len};
  RunInputs inputs;
  inputs.settings = settings_of(options, config);
  MFSDP_LET(data, open(*options.data, options, form));
  inputs.data = std::move(data);
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
    inputs.exported.emplace(std::move(exported));
  }
  inputs.logits = options.logits;
  if (inputs.logits) {
    if (const auto kept = find_eval_logits(program); !kept)
      return fail("--logits", kept.error().message());
  }
  return inputs;
}

}  // namespace mfsdp
