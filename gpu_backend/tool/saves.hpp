// --save and --resume: where a run's state is read and written.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "gpu_backend/checkpoint/run_lock.hpp"
#include "gpu_backend/checkpoint/saved_state.hpp"
#include "gpu_backend/checkpoint/saver.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// Errors: the folder is not for saves: the root, the user's home, or a folder that holds other
/// folders but no saves. Only reads the file system.
[[nodiscard]] Result<void> check_save_folder(const ExecOptions& options);

/// Locks --save's folder for the lifetime of `lock`. Has no effect if `lock` already holds it, or
/// without --save. Warns if the file system has no locks. Errors: another run holds the lock; the
/// folder cannot be created or written.
[[nodiscard]] Result<void> lock_save_folder(const ExecOptions& options, const Session& session,
                                            std::optional<RunLock>& lock);

struct Saves {
  std::optional<SavedState> resumed;
  std::optional<Saver> saver;

  /// The position at which the run begins.
  [[nodiscard]] TrainPosition start() const {
    return resumed ? resumed->manifest().position : TrainPosition{};
  }
  [[nodiscard]] std::optional<ResumedFrom> origin() const;
  /// Whether --resume and --save are different folders: then the state is written for this mesh
  /// even if no step is left.
  [[nodiscard]] bool moves() const;
  /// Sets the trainer's source and keeper; this object outlives the trainer.
  void attach_to(TrainInputs& inputs);
};

/// `run`: signed, at its beginning. `leads`: the reporting rank is in this process. Then it also warns of
/// differences from the save that are allowed, and checks whether the folder can be used. Errors:
/// --resume has no save that this run can resume from; --save cannot be written.
[[nodiscard]] Result<Saves> open_saves(const ExecOptions& options, const Session& session,
                                       const RunHead& run, const TrainSettings& settings,
                                       const Dataset& data, const Program& program, bool leads);

}  // namespace mfsdp
