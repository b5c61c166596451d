#include "sim/engines/ddp_buckets.hpp"

#include <utility>

namespace mfsdp {

std::vector<std::vector<std::size_t>> ddp_buckets(const std::vector<std::int64_t>& bytes,
                                                  std::int64_t first, std::int64_t others) {
  std::vector<std::vector<std::size_t>> buckets;
  std::vector<std::size_t> open;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    open.push_back(i);
    size += bytes[i];
    if (size < (buckets.empty() ? first : others)) continue;
    buckets.push_back(std::exchange(open, {}));
    size = 0;
  }
  if (!open.empty()) buckets.push_back(std::move(open));
  return buckets;
}

}  // namespace mfsdp
