// Saves a run: each rank that is a first replica writes its own elements, then rank 0 completes the
// save.
//
//   rank 0   make step-N.partial ─┐                      ┌─ manifest, rename, latest ─┐
//   others                        ├─ write, sync a file ─┤                            ├─ go on
//                               gather                 gather                       gather
//
// An earlier save is not changed before the new one is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "gpu_backend/checkpoint/disk.hpp"
#include "gpu_backend/checkpoint/format.hpp"
#include "gpu_backend/train/train_state.hpp"

namespace mfsdp {

struct SaveSettings {
  std::filesystem::path folder;
  std::int64_t every = 0;                           ///< steps; 0: only at the end
  std::int64_t kept = 0;                            ///< saves that stay; 0: all
  SaveProbe probe = [] { return Result<void>(); };  ///< for tests; several ranks call it
                                                    ///< concurrently
};

class Saver final : public StateKeeper {
 public:
  /// `began`: the position at which the run began.
  Saver(SaveSettings settings, RunIdentity run, TrainPosition began = {})
      : settings_(std::move(settings)), run_(std::move(run)), began_(began) {}

  [[nodiscard]] const std::filesystem::path& folder() const { return settings_.folder; }

  [[nodiscard]] bool is_due(std::int64_t steps_done) const override {
    return settings_.every > 0 && steps_done % settings_.every == 0;
  }

  /// Errors: the folder or a file cannot be written, as Fault::environment. Earlier saves are
  /// unchanged. The incomplete save stays, because other ranks may still write to it.
  [[nodiscard]] Result<Bytes> keep(const RestingRank& rank, const TrainPosition& position,
                                   HostGather& gather, const HostGather::Alive& alive) override;

  /// Removes the rest of a failed save, as far as possible. Call when no rank saves any more.
  void tidy() const;

 private:
  [[nodiscard]] Result<std::optional<SavedFile>> write_share(const RestingRank& rank,
                                                             std::int64_t step) const;
  [[nodiscard]] Result<void> complete(const SaveFolder& folder, const Manifest& manifest) const;

  SaveSettings settings_;
  RunIdentity run_;
  TrainPosition began_;
};

/// The elements that a rank writes: own weights and optimizer states of each parameter, if no lower
/// rank has the same ones. `rank` outlives it.
struct RankShare {
  StateHeader header;
  std::vector<const HeldElements*> held = {};  ///< by entry
};
[[nodiscard]] RankShare share_of(const RestingRank& rank, std::int64_t step);

}  // namespace mfsdp
