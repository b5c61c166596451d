// Writes compute weights to a folder that transformers loads; all ranks take part.
//
//   rank 0    makes a folder beside the target, with files of their full size and headers
//   all       write the elements that no lower rank updates, each at its place; for a model with
//             adapters these first, to a file that all read, to add them to the model's own
//   rank 0    renames the folder; before that, the target is unchanged
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/train/host_gather.hpp"
#include "gpu_backend/train/parameter_places.hpp"
#include "gpu_backend/weights/hf_export_layout.hpp"
#include "gpu_backend/weights/hf_tensors.hpp"
#include "gpu_backend/weights/merge_adapters.hpp"
#include "gpu_backend/weights/temporary_folder.hpp"

namespace mfsdp {

/// A future export. Ranks that are threads share one; processes make equal ones.
class HfExport {
 public:
  /// Checks before training everything that could fail at the end. Errors: the folder holds
  /// anything but an earlier export (which is replaced as a whole); it cannot be created, or its
  /// disk has too little space (Fault::environment); a checkpoint cannot represent the model or
  /// plan. Creates the parent folders, removes the leftovers of killed exports to this target, and
  /// creates nothing else.
  [[nodiscard]] static Result<HfExport> prepare(const Program& program,
                                                const std::filesystem::path& folder,
                                                std::int64_t shard_bytes = kHfShardBytes);

  /// Likewise for an export of the adapters alone, in the format of PEFT and in the main weights'
  /// dtype. Errors: also a program without adapters.
  [[nodiscard]] static Result<HfExport> prepare_adapters(const Program& program,
                                                         const std::filesystem::path& folder);

  /// Every rank calls it after its backend has run all issued ops. If it fails on one rank, the
  /// folder is unchanged and no temporary one is left. Exception: other files have appeared in the
  /// target meanwhile; then the error names the folder of the export. Errors: Fault::environment,
  /// naming the file.
  [[nodiscard]] Result<void> write(std::int64_t rank, Backend& backend,
                                   std::span<const ParameterPlaces> parameters,
                                   HostGather& gather) const;

  /// As the user named it.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const ExportLayout& layout() const { return content_.layout; }
  /// The leftovers of killed exports that prepare() found.
  [[nodiscard]] const ExportLeftovers& leftovers() const { return leftovers_; }

 private:
  /// The data of files with one layout.
  struct Content {
    HfTensors tensors;
    ExportLayout layout;
    DType dtype = DType::bf16;
    bool updated = false;  ///< true: the weights that the optimizer updates; false: compute weights
  };

  HfExport(std::filesystem::path folder, std::filesystem::path target, Content content)
      : folder_(std::move(folder)), target_(std::move(target)), content_(std::move(content)) {}

  /// Checks the folder and creates its parents.
  [[nodiscard]] static Result<HfExport> of(const std::filesystem::path& folder, Content content);
  [[nodiscard]] Result<void> make_files(const std::filesystem::path& into,
                                        const ExportLayout& layout) const;
  [[nodiscard]] Result<void> write_own(const Content& content, const std::filesystem::path& into,
                                       Backend& backend,
                                       std::span<const ParameterPlaces> parameters,
                                       MergedAdapters* merged) const;
  [[nodiscard]] Result<void> put_in_place(const std::filesystem::path& made) const;

  std::filesystem::path folder_;  ///< as the user named it
  std::filesystem::path target_;  ///< the same without links
  Content content_;
  std::optional<Content> merged_{};  ///< adapters that are added to it
  double scale_ = 1;                 ///< of the adapters
  ExportLeftovers leftovers_;
};

}  // namespace mfsdp
