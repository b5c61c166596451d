// Initial adapters from a folder that PEFT has saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/safetensors.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"
#include "gpu_backend/train/initial_weights.hpp"
#include "gpu_backend/weights/hf_tensors.hpp"

namespace mfsdp {

/// A folder with adapter_config.json and adapter_model.safetensors in the format of PEFT. Ranks
/// that are threads share one object.
class PeftAdapters final : public WeightSource {
 public:
  /// Errors name the file, the tensor and the expectation: those of check_peft_config; a program
  /// without adapters; a tensor that is missing, that no adapter has, or that has another shape.
  [[nodiscard]] static Result<PeftAdapters> open(const std::filesystem::path& folder,
                                                 const Program& program);

  /// `parameter` belongs to an adapter. An error if the file has changed since open().
  [[nodiscard]] Result<void> read(const PlacedParameter& parameter, std::int64_t begin,
                                  std::span<double> out) const override;

 private:
  PeftAdapters(HfTensors tensors, std::unique_ptr<MappedFile> file)
      : tensors_(std::move(tensors)), file_(std::move(file)) {}

  HfTensors tensors_;
  std::unique_ptr<MappedFile> file_;  ///< the tensors point into it
  std::vector<SafeTensor> stored_;    ///< by index into tensors_
};

}  // namespace mfsdp
