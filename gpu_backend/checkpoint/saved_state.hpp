// Reads a save, on ranks that may differ from those that wrote it.
//
//   rank needs      |---- parameter w, elements 30 to 80 ----|
//   files hold  rank-0: 0 to 49 |----- rank-1: 50 to 99 -----|
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/checkpoint/format.hpp"
#include "gpu_backend/checkpoint/state_file.hpp"
#include "gpu_backend/train/train_state.hpp"

namespace mfsdp {

/// A saved state of one parameter: `elements` in total.
struct ExpectedState {
  std::string parameter;
  std::string kind{kSavedWeight};  ///< StateEntry's
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
};

/// All states in a save of this program, in its order.
[[nodiscard]] std::vector<ExpectedState> expected_state(const Program& program);

/// A save whose headers have been read, with the file of each element. Several threads may call
/// const functions.
class SavedState final : public StateSource {
 public:
  /// `path`: a save, or a folder of saves. Errors: those of find_save, manifest, files and headers;
  /// a file of another step than the manifest's. Every error about a damaged save, also in visit
  /// and fill, names the newest save before it whose headers can be read.
  [[nodiscard]] static Result<SavedState> open(const std::filesystem::path& path);
  SavedState(SavedState&&) = default;
  SavedState& operator=(SavedState&&) = default;
  SavedState(const SavedState&) = delete;  // parts_ point into files_
  SavedState& operator=(const SavedState&) = delete;
  ~SavedState() override = default;

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  /// Whether the files hold each expected element exactly once and nothing else. Errors name files,
  /// parameter and elements.
  [[nodiscard]] Result<void> check(const std::vector<ExpectedState>& expected) const;

  /// Visits the elements in order, as visit_elements does. Call after check().
  [[nodiscard]] Result<void> visit(const std::string& parameter, std::string_view kind,
                                   const Interval& wanted, const VisitElements& visit) const;

  /// Fills main weights and optimizer states as saved, and compute weights rounded from main
  /// weights in the way of the optimizer. Call after check().
  [[nodiscard]] Result<void> fill(const RestingRank& rank) const override;

 private:
  /// Elements in one file.
  struct Part {
    const StateFile* file = nullptr;
    const StateEntry* entry = nullptr;
  };
  using Key = std::pair<std::string, std::string>;  ///< parameter and kind

  [[nodiscard]] static Result<SavedState> open_save(const std::filesystem::path& folder);
  [[nodiscard]] static tl::unexpected<Error> with_save_before(Error error,
                                                              const std::filesystem::path& folder);

  SavedState(Manifest manifest, std::filesystem::path folder)
      : manifest_(std::move(manifest)), folder_(std::move(folder)) {}
  [[nodiscard]] Result<void> fill_weights(const RestingRank& rank,
                                          const ParameterPlaces& places) const;
  [[nodiscard]] Result<void> check_parts(const ExpectedState& expected) const;
  /// Uploads saved bytes to what a rank holds of them.
  using UploadTo =
      std::function<Result<void>(const HeldElements& held, std::span<const std::byte> bytes)>;
  using UploadElements =
      std::function<Result<void>(const UploadTo& to, std::span<const std::byte> bytes)>;
  /// Calls upload(to, bytes) with the saved bytes of all elements in `wanted`, maybe among others.
  [[nodiscard]] Result<void> visit_held(const RestingRank& rank, const ParameterPlaces& places,
                                        std::string_view kind, const Interval& wanted,
                                        const UploadElements& upload) const;

  Manifest manifest_;
  std::filesystem::path folder_;
  std::vector<StateFile> files_;            ///< never grows once parts_ point into it
  std::map<Key, std::vector<Part>> parts_;  ///< by their first element
};

}  // namespace mfsdp
