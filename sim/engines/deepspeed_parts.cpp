#include "sim/engines/deepspeed_parts.hpp"

#include <algorithm>

#include "core/base/quantity.hpp"

namespace mfsdp {

DeepSpeedParts::DeepSpeedParts(const std::vector<std::int64_t>& sizes, std::int64_t ranks)
    : ranks_(ranks), begins_{0}, part_(0) {
  constexpr std::int64_t kAlignment = 2;  // elements of bf16 in four bytes
  for (const std::int64_t size : sizes) begins_.push_back(checked_add(begins_.back(), size));
  part_ = round_up(used(), kAlignment * ranks) / ranks;
}

std::int64_t DeepSpeedParts::shared(std::int64_t rank, std::size_t parameter) const {
  const std::int64_t begin = std::max(begins_[parameter], rank * part_);
  const std::int64_t end = std::min(begins_[parameter + 1], (rank + 1) * part_);
  return std::max<std::int64_t>(end - begin, 0);
}

bool DeepSpeedParts::has(std::int64_t rank, std::size_t parameter) const {
  return shared(rank, parameter) > 0;
}

std::vector<DeepSpeedParts::Slice> DeepSpeedParts::slices(
    const std::vector<std::size_t>& parameters) const {
  std::vector<Slice> all;
  for (const std::size_t parameter : parameters)
    for (std::int64_t rank = begins_[parameter] / part_; has(rank, parameter); ++rank) {
      if (all.empty() || all.back().rank != rank) all.push_back({.rank = rank});
      all.back().elements += shared(rank, parameter);
    }
  return all;
}

}  // namespace mfsdp
