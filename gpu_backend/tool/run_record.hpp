// Output during a run: lines, progress, the store.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/progress.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "reports/record/result.hpp"
#include "reports/session/run_store.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

class RunRecord final : public TrainSink {
 public:
  /// `head`: the record at the beginning. `allocated`: bytes in pools of the reporting rank.
  /// `peak_tflops`: the device's in bf16, if known. `unread`: set when standard output cannot be
  /// written.
  RunRecord(const ExecOptions& options, const Session& session, MeasuredRun head,
            std::function<Bytes()> allocated, std::optional<double> peak_tflops,
            std::atomic<bool>& unread);

  /// Stores the head. Errors: those of RunStore::begin.
  [[nodiscard]] Result<void> begin();

  [[nodiscard]] Result<void> step(const StepReport& report) override;
  [[nodiscard]] Result<void> evaluation(const EvalReport& report) override;
  [[nodiscard]] Result<void> saved(const SaveReport& report) override;
  [[nodiscard]] Result<void> norms(std::int64_t step,
                                   std::span<const ParameterNorm> norms) override;

  /// Stores the remaining steps and how the run ended, and ends the progress line. `result`
  /// receives steps and evaluations.
  void finish(MeasuredRun& result);

  [[nodiscard]] const std::vector<StepResult>& steps() const { return all_.steps; }
  [[nodiscard]] std::string store_note() const { return store_.note(); }

 private:
  void flush();
  void say(const std::string& line);
  /// Steps whose gradient is not finite update nothing.
  [[nodiscard]] bool skips() const { return head_.config.updates_by_norm(); }
  [[nodiscard]] std::string line_of(const StepReport& report) const;

  const ExecOptions& options_;
  Session session_;
  RunStore store_;
  MeasuredRun head_;
  std::function<Bytes()> allocated_;
  std::optional<double> peak_tflops_;
  std::atomic<bool>& unread_;
  Progress progress_;
  RunProgress all_;      ///< of the whole run
  RunProgress pending_;  ///< not stored yet
  std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
};

}  // namespace mfsdp
