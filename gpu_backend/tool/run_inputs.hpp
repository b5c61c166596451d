// The inputs of a run of mfsdp-exec, from its flags: data, weights, settings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/train/text/text_form.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "gpu_backend/weights/hf_weights.hpp"
#include "gpu_backend/weights/lora_weights.hpp"

namespace mfsdp {

struct RunInputs {
  TrainSettings settings;
  std::shared_ptr<const TextForm> text;  ///< null: bytes, or no text
  std::vector<std::string> warnings;     ///< about text and its tokens
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Dataset> eval_data;    ///< null: no evaluation
  std::optional<HfWeights> initial;      ///< of --init-from
  std::optional<PeftAdapters> adapters;  ///< of --init-adapters
  std::vector<HfExport> exported;        ///< to --export and --export-adapters
  std::optional<std::string> logits;     ///< file of --logits

  /// Without stop, gather and saves. This object outlives the result.
  [[nodiscard]] TrainInputs train_inputs() const;
};

/// Converts --epochs to steps: as many as read all samples that often, with a full last step.
/// Errors: those of the datasets, of open_text_form, HfWeights::open, PeftAdapters::open,
/// HfExport::prepare and find_eval_logits.
[[nodiscard]] Result<RunInputs> open_run_inputs(const ExecOptions& options, const Program& program);

}  // namespace mfsdp
