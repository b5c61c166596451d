// Adds adapters to their matrices: W + scale * B A, in double.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/safetensors.hpp"
#include "core/shard/flat_layout.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"

namespace mfsdp {

class MergedAdapters {
 public:
  /// A file of adapters with PEFT's names (peft_name). Errors: those of parse_safetensors.
  [[nodiscard]] static Result<MergedAdapters> open(const std::filesystem::path& file, double scale);

  /// Adds the contribution of the adapters to `values`, which are the elements `elements` of the
  /// model's tensor with this name, row-major with rows of `row`. No effect if the tensor has no
  /// adapter.
  void add(const std::string& tensor, std::int64_t row, const Interval& elements,
           std::span<double> values);

 private:
  MergedAdapters(std::unique_ptr<MappedFile> file, double scale)
      : file_(std::move(file)), scale_(scale) {}
  [[nodiscard]] std::vector<double> read(const SafeTensor& tensor) const;

  std::unique_ptr<MappedFile> file_;  ///< the tensors point into it
  double scale_;
  std::map<std::string, SafeTensor> tensors_;
  std::string last_;         ///< the tensor of the last call
  std::vector<double> a_{};  ///< its adapter's matrices: [rank, row] and [rows, rank]
  std::vector<double> b_{};
};

}  // namespace mfsdp
