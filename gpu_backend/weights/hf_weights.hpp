// Initial weights from a Hugging Face checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/train/initial_weights.hpp"
#include "gpu_backend/weights/hf_folder.hpp"
#include "gpu_backend/weights/hf_tensors.hpp"

namespace mfsdp {

/// A folder with config.json and safetensors, mapped into memory. A rank reads only the bytes that
/// it holds. Ranks that are threads share one object.
class HfWeights final : public WeightSource {
 public:
  /// Errors name the file, the tensor and the expectation: those of check_hf_config and HfFolder; a
  /// tensor that is missing, that the model does not have, or that has another shape or no floating
  /// dtype. The head's matrix of a tied model may exist if it equals the embedding's.
  [[nodiscard]] static Result<HfWeights> open(const std::filesystem::path& folder,
                                              const Program& program);

  /// An error if a file has changed since open().
  [[nodiscard]] Result<void> read(const PlacedParameter& parameter, std::int64_t begin,
                                  std::span<double> out) const override;

 private:
  HfWeights(HfTensors tensors, HfFolder folder)
      : tensors_(std::move(tensors)), folder_(std::move(folder)) {}

  HfTensors tensors_;
  HfFolder folder_;
  std::vector<const StoredTensor*> stored_;  ///< by index into tensors_
};

}  // namespace mfsdp
