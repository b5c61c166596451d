#include "gpu_backend/train/data/mixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/quantity.hpp"
#include "gpu_backend/train/data/random_bits.hpp"

namespace mfsdp {
namespace {

/// Samples in which the weights are kept.
constexpr std::int64_t kRound = 1000;

/// How many of a round are each part's: what its weight says, rounded down, and what is left over
/// to those that lost most.
std::vector<std::int64_t> shares_of(const std::vector<MixturePart>& parts) {
  double all = 0;
  for (const MixturePart& part : parts) all += part.weight;
  std::vector<std::int64_t> shares;
  std::vector<double> lost;
  for (const MixturePart& part : parts) {
    const double exact = part.weight / all * static_cast<double>(kRound);
    shares.push_back(static_cast<std::int64_t>(std::floor(exact)));
    lost.push_back(exact - std::floor(exact));
  }
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return lost[a] > lost[b]; });
  const std::int64_t left = kRound - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < left; ++i)
    ++shares[order[static_cast<std::size_t>(i) % order.size()]];
  return shares;
}

class Mixture final : public Dataset {
 public:
  Mixture(std::vector<MixturePart> parts, std::vector<std::int64_t> shares)
      : parts_(std::move(parts)), shares_(std::move(shares)) {
    for (const MixturePart& part : parts_) samples_ = checked_add(samples_, part.data->samples());
  }

  [[nodiscard]] std::string describe() const override {
    std::string text = fmt::format("a mixture of {}", parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i)
      text += fmt::format("; {:.1f} % {}: {}", static_cast<double>(shares_[i]) * 100.0 / kRound,
                          parts_[i].name, parts_[i].data->describe());
    return text;
  }
  [[nodiscard]] std::int64_t samples() const override { return samples_; }
  [[nodiscard]] std::optional<double> unigram_entropy() const override { return std::nullopt; }
  [[nodiscard]] std::string order() const override { return join(); }

  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    assert(index >= 0 && index < samples_);
    std::size_t part = 0;
    while (index >= parts_[part].data->samples()) index -= parts_[part++].data->samples();
    return parts_[part].data->read(index, out);
  }

  /// Each round is a permutation of its places; a place is one part's, and its number within the
  /// part's share says which of the part's samples comes.
  [[nodiscard]] Result<void> read_in_order(std::uint64_t seed, std::int64_t n,
                                           const SampleSpans& out) const override {
    const std::int64_t round = n / kRound;
    std::int64_t place = shuffled_sample(mix_bits(seed), n, kRound);
    std::size_t part = 0;
    while (place >= shares_[part]) place -= shares_[part++];
    return parts_[part].data->read_in_order(seed + part, round * shares_[part] + place, out);
  }

 private:
  [[nodiscard]] std::string join() const {
    std::string text;
    for (const std::int64_t share : shares_) text += fmt::format("{} ", share);
    return text;
  }

  std::vector<MixturePart> parts_;
  std::vector<std::int64_t> shares_;  ///< of each round
  std::int64_t samples_ = 0;
};

}  // namespace

Result<std::unique_ptr<Dataset>> mix(std::vector<MixturePart> parts) {
  std::vector<std::int64_t> shares = shares_of(parts);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (shares[i] == 0)
      return fail(parts[i].name,
                  fmt::format("expected a weight of at least a thousandth of all, got {}",
                              parts[i].weight));
  return std::make_unique<Mixture>(std::move(parts), std::move(shares));
}

}  // namespace mfsdp
