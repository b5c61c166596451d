#include "gpu_backend/weights/merge_adapters.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/quantity.hpp"
#include "gpu_backend/weights/hf_tensors.hpp"
#include "gpu_backend/weights/tensor_elements.hpp"

namespace mfsdp {

Result<MergedAdapters> MergedAdapters::open(const std::filesystem::path& file, double scale) {
  MFSDP_LET(opened, MappedFile::open(file, "safetensors"));
  MergedAdapters made(std::make_unique<MappedFile>(std::move(opened)), scale);
  MFSDP_LET(parsed, parse_safetensors(made.file_->bytes(), made.file_->name()));
  for (SafeTensor& tensor : parsed.tensors) {
    std::string name = tensor.name;
    made.tensors_.emplace(std::move(name), std::move(tensor));
  }
  return made;
}

std::vector<double> MergedAdapters::read(const SafeTensor& tensor) const {
  std::vector<double> values(static_cast<std::size_t>(product_of(tensor.shape)));
  read_elements(tensor, 0, values);
  return values;
}

void MergedAdapters::add(const std::string& tensor, std::int64_t row, const Interval& elements,
                         std::span<double> values) {
  if (std::exchange(last_, tensor) != tensor) {
    constexpr std::string_view weight = "weight";
    const std::string layer = peft_name(
        tensor.ends_with(weight) ? tensor.substr(0, tensor.size() - weight.size()) : tensor);
    const auto a = tensors_.find(layer + "lora_A.weight");
    const auto b = tensors_.find(layer + "lora_B.weight");
    const bool has_both = a != tensors_.end() && b != tensors_.end();
    a_ = has_both ? read(a->second) : std::vector<double>{};
    b_ = has_both ? read(b->second) : std::vector<double>{};
  }
  if (a_.empty()) return;
  const std::int64_t rank = std::ssize(a_) / row;
  for (std::int64_t at = elements.begin; at < elements.end;) {
    const std::int64_t i = at / row;
    const std::int64_t first = at % row;
    const std::int64_t last = std::min(row, first + elements.end - at);
    double* const out = values.data() + (at - elements.begin) - first;
    for (std::int64_t k = 0; k < rank; ++k) {
      const double factor = scale_ * b_[static_cast<std::size_t>(i * rank + k)];
      const double* const from = a_.data() + k * row;
      for (std::int64_t j = first; j < last; ++j) out[j] += factor * from[j];
    }
    at += last - first;
  }
}

}  // namespace mfsdp
