// Compute weights to a folder that transformers loads, written by all ranks together.
//
//   rank 0    makes a folder beside the target, with files of their full size and headers
//   all       write the elements that no lower rank updates, each at its place; of a model with
//             adapters these first, to a file that all read, to add them to the model's own
//   rank 0    renames the folder: before that, whoever looks sees what was there
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

/// An export to come. Ranks that are threads share one; processes make equal ones.
class HfExport {
 public:
  /// Refuses what would be refused when the weights are there, so that no training is in vain: a
  /// folder that holds anything but an earlier export (which is replaced as a whole); one that
  /// cannot be made, or whose disk has too little room (Fault::environment); models and plans
  /// that a checkpoint cannot hold. Makes the folders above it, and removes what killed exports to
  /// it have left; leaves nothing else behind.
  [[nodiscard]] static Result<HfExport> prepare(const Program& program,
                                                const std::filesystem::path& folder,
                                                std::int64_t shard_bytes = kHfShardBytes);

  /// An export of the adapters alone, as PEFT saves them: in the main weights' dtype. Errors:
  /// likewise; a program without adapters.
  [[nodiscard]] static Result<HfExport> prepare_adapters(const Program& program,
                                                         const std::filesystem::path& folder);

  /// Called by every rank when its backend has run all that was issued. When it fails on one rank
  /// the folder is as it was before; no temporary one is left, unless the target has come to hold
  /// something else meanwhile: then the error says where the export is. Errors:
  /// Fault::environment, naming the file.
  [[nodiscard]] Result<void> write(std::int64_t rank, Backend& backend,
                                   std::span<const ParameterPlaces> parameters,
                                   HostGather& gather) const;

  /// As the user named it.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const ExportLayout& layout() const { return content_.layout; }
  /// What prepare() found of killed exports.
  [[nodiscard]] const ExportLeftovers& leftovers() const { return leftovers_; }

 private:
  /// What is written to files of one layout.
  struct Content {
    HfTensors tensors;
    ExportLayout layout;
    DType dtype = DType::bf16;
    bool updated = false;  ///< the weights that the optimizer updates; else those that compute
  };

  HfExport(std::filesystem::path folder, std::filesystem::path target, Content content)
      : folder_(std::move(folder)), target_(std::move(target)), content_(std::move(content)) {}

  /// In a folder that is checked; makes those above it.
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
  double scale_ = 1;                 ///< theirs
  ExportLeftovers leftovers_;
};

}  // namespace mfsdp
