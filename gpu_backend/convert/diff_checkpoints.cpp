#include "gpu_backend/convert/diff_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "core/formats/safetensors.hpp"
#include "gpu_backend/convert/element_values.hpp"
#include "gpu_backend/convert/mapped_reader.hpp"
#include "gpu_backend/convert/tensor_names.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kDiffElements = 1 << 20;

using Mapped = std::map<std::pair<std::string, std::string>, MappedTensor>;  ///< name, state

Result<Mapped> mapped_tensors(const Checkpoint& checkpoint, const std::optional<Model>& model) {
  if (!checkpoint.problems.empty()) return tl::unexpected<Error>(checkpoint.problems.front());
  const auto named = name_tensors(checkpoint);
  std::vector<MappedTensor> tensors = unchanged_tensors(named);
  if (model) MFSDP_SET(tensors, to_hf_names(named, *model));
  Mapped mapped;
  for (MappedTensor& tensor : tensors) {
    auto key = std::pair(tensor.name, tensor.state);
    mapped.emplace(std::move(key), std::move(tensor));
  }
  return mapped;
}

std::string full_name(const std::pair<std::string, std::string>& key) {
  return key.second.empty() ? key.first : fmt::format("{} ({})", key.first, key.second);
}

std::vector<std::int64_t> index_of(std::int64_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; element /= shape[i]) index[i] = element % shape[i];
  return index;
}

class ElementComparison {
 public:
  ElementComparison(const Checkpoint& a, const Checkpoint& b, const ReadProgress& progress)
      : first_(a), second_(b), progress_(progress) {}

  Result<TensorDifference> compare(const MappedTensor& a, const MappedTensor& b) {
    TensorDifference difference;
    const std::int64_t elements = product_of(a.shape);
    const auto size_a = static_cast<std::size_t>(bytes_of(*a.type));
    const auto size_b = static_cast<std::size_t>(bytes_of(*b.type));
    for (std::int64_t at = 0; at < elements; at += kDiffElements) {
      const auto count = static_cast<std::size_t>(std::min(kDiffElements, elements - at));
      bytes_a_.resize(count * size_a);
      bytes_b_.resize(count * size_b);
      MFSDP_TRY(first_.read(a, at, bytes_a_));
      MFSDP_TRY(second_.read(b, at, bytes_b_));
      done_ += static_cast<std::int64_t>(bytes_a_.size());
      if (progress_) progress_(done_);
      if (a.type == b.type && bytes_a_ == bytes_b_) continue;
      for (std::size_t i = 0; i < count; ++i) {
        if (!differ(a, b, i)) continue;
        if (difference.elements++ == 0)
          difference.first = index_of(at + static_cast<std::int64_t>(i), a.shape);
        difference.largest = std::max(difference.largest, distance(a, b, i));
      }
    }
    return difference;
  }

 private:
  [[nodiscard]] bool differ(const MappedTensor& a, const MappedTensor& b, std::size_t i) const {
    if (a.type != b.type) return number_at(*a.type, bytes_a_, i) != number_at(*b.type, bytes_b_, i);
    const auto size = static_cast<std::size_t>(bytes_of(*a.type));
    return std::memcmp(bytes_a_.data() + i * size, bytes_b_.data() + i * size, size) != 0;
  }
  [[nodiscard]] double distance(const MappedTensor& a, const MappedTensor& b, std::size_t i) const {
    if (!is_numeric(*a.type)) return 0;
    const double size =
        std::fabs(number_at(*a.type, bytes_a_, i) - number_at(*b.type, bytes_b_, i));
    return std::isnan(size) ? std::numeric_limits<double>::infinity() : size;
  }

  MappedReader first_;
  MappedReader second_;
  const ReadProgress& progress_;
  std::int64_t done_ = 0;
  std::vector<std::byte> bytes_a_;
  std::vector<std::byte> bytes_b_;
};

bool can_compare(const MappedTensor& a, const MappedTensor& b) {
  return a.type == b.type || (is_numeric(*a.type) && is_numeric(*b.type));
}

}  // namespace

Result<CheckpointDifference> diff_checkpoints(const Checkpoint& a, const Checkpoint& b,
                                              const std::optional<Model>& model,
                                              const ReadProgress& progress) {
  MFSDP_LET(first, mapped_tensors(a, model));
  MFSDP_LET(second, mapped_tensors(b, model));
  CheckpointDifference difference;
  ElementComparison comparison(a, b, progress);
  for (const auto& [key, one] : first) {
    const auto found = second.find(key);
    if (found == second.end()) {
      difference.tensors.push_back({.name = full_name(key), .what = "is only in the first"});
      continue;
    }
    const MappedTensor& other = found->second;
    if (one.shape != other.shape) {
      difference.tensors.push_back(
          {.name = full_name(key),
           .what = fmt::format("has shape {} and {}", shown_shape(one.shape),
                               shown_shape(other.shape))});
      continue;
    }
    ++difference.compared;
    std::string dtypes;
    if (one.type != other.type)
      dtypes = fmt::format("has dtype {} and {}", one.type->safetensors, other.type->safetensors);
    TensorDifference found_here;
    if (can_compare(one, other)) MFSDP_SET(found_here, comparison.compare(one, other));
    if (found_here.elements == 0 && dtypes.empty()) continue;
    found_here.name = full_name(key);
    found_here.what = found_here.elements == 0 ? dtypes
                      : dtypes.empty()         ? "has other values"
                                               : dtypes + ", and other values";
    difference.tensors.push_back(std::move(found_here));
  }
  for (const auto& [key, other] : second)
    if (!first.contains(key))
      difference.tensors.push_back({.name = full_name(key), .what = "is only in the second"});
  return difference;
}

}  // namespace mfsdp
