// A Membership written out, for those who ask for every rank many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/mesh.hpp"

namespace mfsdp {

class Members {
 public:
  explicit Members(const Membership& membership)
      : size_(static_cast<std::size_t>(membership.size())) {
    const std::size_t count = static_cast<std::size_t>(membership.count());
    ranks_.reserve(size_ * count);
    of_.resize(size_ * count);
    for (std::size_t c = 0; c < count; ++c)
      for (std::size_t m = 0; m < size_; ++m) {
        const std::int64_t rank =
            membership.rank(static_cast<std::int64_t>(c), static_cast<std::int64_t>(m));
        ranks_.push_back(static_cast<std::uint32_t>(rank));
        of_[static_cast<std::size_t>(rank)] = static_cast<std::uint32_t>(c);
      }
  }

  /// How many communicators there are.
  [[nodiscard]] std::size_t count() const { return ranks_.size() / size_; }
  /// The ranks of a communicator, in its order.
  [[nodiscard]] std::span<const std::uint32_t> ranks(std::size_t communicator) const {
    return std::span(ranks_).subspan(communicator * size_, size_);
  }
  /// The communicator that a rank is in.
  [[nodiscard]] std::size_t of(std::size_t rank) const { return of_[rank]; }

 private:
  std::size_t size_;
  std::vector<std::uint32_t> ranks_;  ///< [count, size]
  std::vector<std::uint32_t> of_;     ///< of each rank
};

}  // namespace mfsdp
