// What a run of mfsdp-exec begins with, as its flags say: data, weights, settings.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/cli/exec_options.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "gpu_backend/weights/hf_weights.hpp"

namespace mfsdp {

struct RunInputs {
  TrainSettings settings;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Dataset> eval_data;  ///< null: no evaluation
  std::optional<HfWeights> initial;    ///< of --init-from
  std::optional<HfExport> exported;    ///< to --export
  std::optional<std::string> logits;   ///< file of --logits

  /// Without stop, gather and saves. This outlives the result.
  [[nodiscard]] TrainInputs train_inputs() const;
  [[nodiscard]] const HfExport* export_or_null() const { return exported ? &*exported : nullptr; }
};

/// Errors: those of the datasets, of HfWeights::open, HfExport::prepare and
/// find_eval_logits.
[[nodiscard]] Result<RunInputs> open_run_inputs(const ExecOptions& options, const Program& program);

}  // namespace mfsdp
