#include <algorithm>
#include <cassert>

#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/random_bits.hpp"

namespace mfsdp {
namespace {

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(std::uint64_t seed, const DatasetSettings& settings)
      : seed_(seed), settings_(settings) {}

  [[nodiscard]] std::string describe() const override {
    return "random tokens from seed " + std::to_string(seed_);
  }
  /// More than any run reads, so that no sample comes twice.
  [[nodiscard]] std::int64_t samples() const override { return std::int64_t{1} << 40; }
  [[nodiscard]] std::optional<double> unigram_entropy() const override { return std::nullopt; }

  /// With about four documents in a sample.
  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    const auto& [tokens, labels, positions] = out;
    assert(index >= 0 && index < samples());
    assert(std::ssize(tokens) == settings_.seq_len && tokens.size() == labels.size());
    const std::uint64_t key = mix_bits(mix_bits(seed_) ^ static_cast<std::uint64_t>(index));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = token(key, i);
      labels[i] = token(key, i + 1);
    }
    const std::uint64_t length = std::max<std::uint64_t>(1, positions.size() / 4);
    for (std::size_t i = 1; i < positions.size(); ++i)
      positions[i] = mix_bits(~key ^ i) % length == 0 ? 0 : positions[i - 1] + 1;
    return {};
  }

 private:
  [[nodiscard]] std::int32_t token(std::uint64_t key, std::uint64_t place) const {
    return static_cast<std::int32_t>(mix_bits(key ^ place) %
                                     static_cast<std::uint64_t>(settings_.vocab));
  }

  std::uint64_t seed_;
  DatasetSettings settings_;
};

}  // namespace

std::unique_ptr<Dataset> synthetic_dataset(std::uint64_t seed, const DatasetSettings& settings) {
  return std::make_unique<SyntheticDataset>(seed, settings);
}

}  // namespace mfsdp
