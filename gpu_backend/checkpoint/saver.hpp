// Saves a run: each rank that is a first replica writes what it owns, then rank 0 completes.
//
//   rank 0   make step-N.partial ─┐                      ┌─ manifest, rename, latest ─┐
//   others                        ├─ write, sync a file ─┤                            ├─ go on
//                               gather                 gather                       gather
//
// Nothing of an earlier save is touched before the new one is complete.
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
  SaveProbe probe = [] { return Result<void>(); };  ///< of tests; called by several ranks at a time
};

class Saver final : public StateKeeper {
 public:
  /// `began`: where the run begins.
  Saver(SaveSettings settings, RunIdentity run, TrainPosition began = {})
      : settings_(std::move(settings)), run_(std::move(run)), began_(began) {}

  [[nodiscard]] const std::filesystem::path& folder() const { return settings_.folder; }

  [[nodiscard]] bool is_due(std::int64_t steps_done) const override {
    return settings_.every > 0 && steps_done % settings_.every == 0;
  }

  /// Errors: the folder or a file cannot be written, faults of the environment. Earlier saves are
  /// as they were; what was written of this one stays, as other ranks may be writing still.
  [[nodiscard]] Result<Bytes> keep(const RestingRank& rank, const TrainPosition& position,
                                   HostGather& gather, const HostGather::Alive& alive) override;

  /// Removes what a save that failed has left, as far as that can be done. No rank saves any more.
  void tidy() const;

 private:
  [[nodiscard]] Result<std::optional<SavedFile>> write_share(const RestingRank& rank,
                                                             std::int64_t step) const;
  [[nodiscard]] Result<Bytes> complete(const SaveFolder& folder, const Manifest& manifest) const;

  SaveSettings settings_;
  RunIdentity run_;
  TrainPosition began_;
};

/// What a rank writes: own weights and optimizer states of each parameter that it holds some of, if
/// it is the lowest that does. `rank` outlives it.
struct RankShare {
  StateHeader header;
  std::vector<const HeldElements*> held;  ///< by entry
};
[[nodiscard]] RankShare share_of(const RestingRank& rank, std::int64_t step);

}  // namespace mfsdp
