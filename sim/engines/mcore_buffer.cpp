#include "sim/engines/mcore_buffer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mfsdp {
namespace {

constexpr std::int64_t kBucketElements = 40'000'000;
constexpr std::int64_t kBucketElementsPerRank = 1'000'000;
constexpr std::int64_t kWeightBegins = 64;
constexpr std::int64_t kBucketEnds = 128;

}  // namespace

std::int64_t ParameterBuffer::owned(std::size_t weight, std::int64_t ranks) const {
  const BufferedWeight& of = weights[weight];
  const Bucket& bucket = buckets[of.bucket];
  const std::int64_t end = bucket.begin + bucket.elements() / ranks;
  return std::max<std::int64_t>(std::min(of.begin + of.elements(), end) - of.begin, 0);
}

std::int64_t ParameterBuffer::padding() const {
  std::int64_t used = 0;
  for (const BufferedWeight& weight : weights) used += weight.elements();
  return elements - used;
}

ParameterBuffer parameter_buffer(std::vector<BufferedWeight> weights, std::int64_t ranks,
                                 bool is_one_bucket) {
  const std::int64_t full = std::max(kBucketElements, checked_mul(kBucketElementsPerRank, ranks));
  const std::int64_t ends = std::lcm(ranks, kBucketEnds);
  ParameterBuffer buffer;
  Bucket open;
  std::int64_t next = 0;
  const auto close = [&] {
    open.end = round_up(next, ends);
    buffer.buckets.push_back(open);
    next = open.end;
    open = {.begin = next, .end = next, .weights = 0};
  };
  for (std::size_t i = weights.size(); i-- > 0;) {
    BufferedWeight& weight = weights[i];
    weight.begin = round_up(next, kWeightBegins);
    weight.bucket = buffer.buckets.size();
    next = weight.begin + weight.elements();
    ++open.weights;
    if (!is_one_bucket && next - open.begin >= full) close();
  }
  if (open.weights > 0) close();
  buffer.elements = next;
  buffer.weights = std::move(weights);
  return buffer;
}

}  // namespace mfsdp
