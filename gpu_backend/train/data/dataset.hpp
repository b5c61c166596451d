// What a training run reads: samples of tokens with labels, from text, token files or chosen at
// random.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "core/base/error.hpp"

namespace mfsdp {

struct TextForm;  // gpu_backend/train/text/text_form.hpp

inline constexpr std::int32_t kIgnoreIndex = -100;  ///< label of a token without loss

/// Where a sample goes.
struct SampleSpans {
  std::span<std::int32_t> tokens;  ///< [seq_len]
  /// [seq_len]: of each token the one after it, or kIgnoreIndex.
  std::span<std::int32_t> labels;
  /// [seq_len], of each token in its document; empty where nobody asks. Before a sample is read it
  /// is one document: 0, 1, 2, ...
  std::span<std::int32_t> positions = {};
};

/// Samples of seq_len tokens with their labels. Const calls may come from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// What it is, for a line of output: "text of 412345 bytes, README.txt".
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Samples in one epoch, >= 1.
  [[nodiscard]] virtual std::int64_t samples() const = 0;

  /// Fills sample `index` (in [0, samples())); positions where the sample is more than one
  /// document. Errors: a token outside the vocabulary (file, place), a file that changed.
  [[nodiscard]] virtual Result<void> read(std::int64_t index, const SampleSpans& out) const = 0;

  /// Fills what comes as number `n` of a run (from 0, without end) in the order of `seed`: sample
  /// shuffled_sample(seed, n, samples()), but for a mixture. A function of (seed, n) alone.
  [[nodiscard]] virtual Result<void> read_in_order(std::uint64_t seed, std::int64_t n,
                                                   const SampleSpans& out) const;

  /// What decides the order beside seed and samples(), for saves to compare: a mixture's weights.
  [[nodiscard]] virtual std::string order() const { return {}; }

  /// Entropy of single tokens in nats: the loss of a model that knows only their frequencies. Of at
  /// most the first 2^24 tokens; none for synthetic data.
  [[nodiscard]] virtual std::optional<double> unigram_entropy() const = 0;
};

struct DatasetSettings {
  std::int64_t vocab = 0;
  std::int64_t seq_len = 0;
  std::shared_ptr<const TextForm> text = nullptr;  ///< how text becomes tokens; null: its bytes
  bool packs = false;  ///< several lines of JSONL in one sample, where they fit
  bool masks = false;  ///< attention between documents: data have to say where these end
  /// Token that ends a document, in data without lines; none: what ends a text.
  std::optional<std::int32_t> document_end = {};
};

/// Those of one document: 0, 1, 2, ...
inline void count_positions(std::span<std::int32_t> positions) {
  std::iota(positions.begin(), positions.end(), 0);
}

/// Opens a file or folder by what it holds (README.md lists the formats).
/// Errors: one line, file and place and what was expected.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_dataset(const std::filesystem::path& path,
                                                            const DatasetSettings& settings);

/// Whether a file or folder is read as text: plain, or lines of JSON. Errors as open_dataset's.
[[nodiscard]] Result<bool> holds_text(const std::filesystem::path& path);

/// Random tokens, equal for equal (seed, index): for benchmarks.
[[nodiscard]] std::unique_ptr<Dataset> synthetic_dataset(std::uint64_t seed,
                                                         const DatasetSettings& settings);

/// Which sample comes when: sample number n of the run (n = step * global batch + place in the
/// batch) is sample shuffled_sample(seed, n, samples) of the dataset. Each epoch is a permutation
/// of all samples drawn from the seed, a pure function of (seed, epoch, place): no state but n, so
/// any world size and strategy reads the same global batches, ranks never share a sample, and n is
/// all that a checkpoint must keep.
[[nodiscard]] std::int64_t shuffled_sample(std::uint64_t seed, std::int64_t n,
                                           std::int64_t samples);

}  // namespace mfsdp
