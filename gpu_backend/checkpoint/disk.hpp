// Files and folders of saves. Everything is synced before later writes rely on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/durable_file.hpp"
#include "core/base/error.hpp"

namespace mfsdp {

/// Called before every change of the file system by a save. Tests count the calls, and make a save
/// fail or die at any of them. An error ends the save, like an error of the system.
using SaveProbe = std::function<Result<void>()>;

/// A file of a save, with its probe. Errors: those of DurableFile.
class NewFile {
 public:
  /// `path` must not exist yet. `probe` outlives the file.
  [[nodiscard]] static Result<NewFile> create(const std::filesystem::path& path,
                                              const SaveProbe& probe);

  [[nodiscard]] Result<void> write(std::int64_t offset, std::span<const std::byte> bytes);
  /// Makes the content durable. Call once, at the end.
  [[nodiscard]] Result<void> close();

 private:
  NewFile(DurableFile file, const SaveProbe& probe) : file_(std::move(file)), probe_(&probe) {}

  DurableFile file_;
  const SaveProbe* probe_;
};

/// Reads exactly `bytes` bytes from `offset`. Errors: the file does not exist or is too short.
[[nodiscard]] Result<void> read_bytes(const std::filesystem::path& path, std::int64_t offset,
                                      std::span<std::byte> bytes);

/// Errors: the folder cannot be created or written.
[[nodiscard]] Result<void> make_save_folder(const std::filesystem::path& path);

/// The folder of saves: DIR in format.hpp. The run holds its lock (run_lock.hpp).
class SaveFolder {
 public:
  /// Creates the folder if necessary, and removes the leftovers of killed saves. Errors: it cannot
  /// be created or written.
  [[nodiscard]] static Result<SaveFolder> open(const std::filesystem::path& path,
                                               const SaveProbe& probe);
  /// Creates an empty folder for the files of a step.
  [[nodiscard]] Result<void> begin(std::int64_t step) const;
  /// Call when the files are complete and synced: gives the folder its name, and points `latest` at
  /// it. Replaces an earlier save of the same step.
  [[nodiscard]] Result<void> finish(std::int64_t step) const;
  /// Removes saves except `kept` of them: that of `step` and those of the next lower steps. Saves
  /// of higher steps are removed first: the run resumed from before them.
  [[nodiscard]] Result<void> prune(std::int64_t step, std::int64_t kept) const;

 private:
  SaveFolder(std::filesystem::path path, const SaveProbe& probe)
      : path_(std::move(path)), probe_(&probe) {}
  [[nodiscard]] Result<void> remove_leftovers() const;
  [[nodiscard]] Result<void> remove(const std::filesystem::path& folder) const;
  [[nodiscard]] Result<void> point_latest_at(const std::string& name) const;
  [[nodiscard]] Result<void> sync(const std::filesystem::path& folder) const;

  std::filesystem::path path_;
  const SaveProbe* probe_;
};

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kLatestName = "latest";

[[nodiscard]] std::string step_folder_name(std::int64_t step);  ///< "step-00000123"
/// The folder in which the files of a step are written until it is complete.
[[nodiscard]] std::filesystem::path partial_folder(const std::filesystem::path& folder,
                                                   std::int64_t step);

/// The save at `path`: the folder itself, or the newest save in it. The newest is the target of
/// `latest`, complete or not, else the highest complete step. Errors: there is none.
[[nodiscard]] Result<std::filesystem::path> find_save(const std::filesystem::path& path);

/// Whether a folder of saves may contain this name, for a save or for the rest of a killed one.
[[nodiscard]] bool is_name_of_save(std::string_view name);

/// Whether a run has saved to this folder.
[[nodiscard]] bool holds_saves(const std::filesystem::path& folder);

/// The folders of saves of lower steps beside `save`, highest first.
[[nodiscard]] std::vector<std::filesystem::path> saves_before(const std::filesystem::path& save);

}  // namespace mfsdp
