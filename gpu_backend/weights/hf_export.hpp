// Compute weights to a folder that transformers loads, written by all ranks together.
//
//   rank 0    makes a folder beside the target, with files of their full size and headers
//   all       write the elements that no lower rank updates, each at its place
//   rank 0    renames the folder: before that, whoever looks sees what was there
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/train/host_gather.hpp"
#include "gpu_backend/train/parameter_places.hpp"
#include "gpu_backend/weights/hf_export_layout.hpp"
#include "gpu_backend/weights/hf_tensors.hpp"
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

  /// Called by every rank when its backend has run all that was issued. When it fails on one rank
  /// the folder is as it was before; no temporary one is left, unless the target has come to hold
  /// something else meanwhile: then the error says where the export is. Errors:
  /// Fault::environment, naming the file.
  [[nodiscard]] Result<void> write(std::int64_t rank, Backend& backend,
                                   std::span<const ParameterPlaces> parameters,
                                   HostGather& gather) const;

  /// As the user named it.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const ExportLayout& layout() const { return layout_; }
  /// What prepare() found of killed exports.
  [[nodiscard]] const ExportLeftovers& leftovers() const { return leftovers_; }

 private:
  HfExport(std::filesystem::path folder, std::filesystem::path target, DType dtype,
           HfTensors tensors, ExportLayout layout)
      : folder_(std::move(folder)),
        target_(std::move(target)),
        dtype_(dtype),
        tensors_(std::move(tensors)),
        layout_(std::move(layout)) {}

  [[nodiscard]] Result<void> make_files(const std::filesystem::path& into) const;
  [[nodiscard]] Result<void> write_own(const std::filesystem::path& into, Backend& backend,
                                       std::span<const ParameterPlaces> parameters) const;
  [[nodiscard]] Result<void> put_in_place(const std::filesystem::path& made) const;

  std::filesystem::path folder_;  ///< as the user named it
  std::filesystem::path target_;  ///< the same without links
  DType dtype_;
  HfTensors tensors_;
  ExportLayout layout_;
  ExportLeftovers leftovers_;
};

}  // namespace mfsdp
