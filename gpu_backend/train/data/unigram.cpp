#include "gpu_backend/train/data/unigram.hpp"

#include <cmath>

namespace mfsdp {

void UnigramCounter::add(std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens) {
    if (token < 0) continue;
    if (is_full()) return;
    ++counts_[static_cast<std::size_t>(token)];
    ++total_;
  }
}

double UnigramCounter::entropy() const {
  double sum = 0;
  for (const std::int64_t count : counts_) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(total_);
    sum -= p * std::log(p);
  }
  return sum;
}

}  // namespace mfsdp
