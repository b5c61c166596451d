// What a save asks of the file system: nothing of it is believed before it is synced.
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

/// Called before every change of the file system that a save makes. Tests count them, and let a
/// save fail or die at any of them; an error ends the save as the system's own would.
using SaveProbe = std::function<Result<void>()>;

/// A file of a save, with its probe. Errors are those of DurableFile.
class NewFile {
 public:
  /// `path` does not exist yet. `probe` outlives the file.
  [[nodiscard]] static Result<NewFile> create(const std::filesystem::path& path,
                                              const SaveProbe& probe);

  [[nodiscard]] Result<void> write(std::int64_t offset, std::span<const std::byte> bytes);
  /// Makes the content durable. Call once, last.
  [[nodiscard]] Result<void> close();

 private:
  NewFile(DurableFile file, const SaveProbe& probe) : file_(std::move(file)), probe_(&probe) {}

  DurableFile file_;
  const SaveProbe* probe_;
};

/// Reads exactly `bytes` from `offset` on. Errors: no such file, or less in it.
[[nodiscard]] Result<void> read_bytes(const std::filesystem::path& path, std::int64_t offset,
                                      std::span<std::byte> bytes);

/// Errors: the folder cannot be made, or not written.
[[nodiscard]] Result<void> make_save_folder(const std::filesystem::path& path);

/// The folder that saves go to: DIR of the format. The run holds its lock (run_lock.hpp).
class SaveFolder {
 public:
  /// Makes the folder if need be, and removes what killed saves have left there. Errors: it cannot
  /// be made or written.
  [[nodiscard]] static Result<SaveFolder> open(const std::filesystem::path& path,
                                               const SaveProbe& probe);
  /// Makes an empty folder for the files of a step.
  [[nodiscard]] Result<void> begin(std::int64_t step) const;
  /// Its files are complete and synced: gives the folder its name, and points `latest` at it. An
  /// earlier save of the same step makes room.
  [[nodiscard]] Result<void> finish(std::int64_t step) const;
  /// Removes saves but `kept` of them: that of `step`, and those of the steps next below. Higher
  /// ones go first: the run has gone on from before them.
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
/// Where the files of a step are written before all of them are there.
[[nodiscard]] std::filesystem::path partial_folder(const std::filesystem::path& folder,
                                                   std::int64_t step);

/// The folder of a save that `path` means: itself, or the newest save below it: what `latest` says,
/// whether it is complete or not, else the highest complete step. Errors: there is none.
[[nodiscard]] Result<std::filesystem::path> find_save(const std::filesystem::path& path);

/// Whether a save or a part of one, as a killed run leaves it, has such a name in its folder.
[[nodiscard]] bool is_name_of_save(std::string_view name);

/// Whether a run has saved to this folder.
[[nodiscard]] bool holds_saves(const std::filesystem::path& folder);

/// The folders of saves of lower steps beside `save`, highest first.
[[nodiscard]] std::vector<std::filesystem::path> saves_before(const std::filesystem::path& save);

}  // namespace mfsdp
