// --save and --resume: where a run's state comes from and goes to.
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

/// Refuses what is no folder for saves: the root of all files, the user's home, and a folder that
/// holds other folders but no saves. Reads the file system only.
[[nodiscard]] Result<void> check_save_folder(const ExecOptions& options);

/// Takes the lock on --save's folder, for as long as `lock` lives. Does nothing where it is held,
/// and without --save. Warns where the file system has no locks. Errors: another run holds it; the
/// folder cannot be made or written.
[[nodiscard]] Result<void> lock_save_folder(const ExecOptions& options, const Session& session,
                                            std::optional<RunLock>& lock);

struct Saves {
  std::optional<SavedState> resumed;
  std::optional<Saver> saver;

  /// What the run has done before it begins.
  [[nodiscard]] TrainPosition start() const {
    return resumed ? resumed->manifest().position : TrainPosition{};
  }
  [[nodiscard]] std::optional<ResumedFrom> origin() const;
  /// From one folder to another: then the state is written even if no step is left, for this mesh.
  [[nodiscard]] bool moves() const;
  /// Puts them where the trainer finds them; they outlive it.
  void attach_to(TrainInputs& inputs);
};

/// `run`: signed, as it begins. `leads`: rank 0 is one of this process's. Then it also warns of
/// what the save has otherwise and need not agree in, and looks whether the folder can be used.
/// Errors:
/// --resume holds no save that this run can go on from; --save cannot be written.
[[nodiscard]] Result<Saves> open_saves(const ExecOptions& options, const Session& session,
                                       const RunHead& run, const TrainSettings& settings,
                                       const Dataset& data, const Program& program, bool leads);

}  // namespace mfsdp
