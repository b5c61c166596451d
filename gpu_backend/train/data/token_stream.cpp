#include "gpu_backend/train/data/token_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "core/base/quantity.hpp"
#include "gpu_backend/train/data/unigram.hpp"

namespace mfsdp {
namespace {

class TokenStream final : public Dataset {
 public:
  TokenStream(std::vector<TokenRun> runs, const DatasetSettings& settings, std::string description)
      : runs_(std::move(runs)), settings_(settings), description_(std::move(description)) {
    for (const TokenRun& run : runs_) ends_.push_back(checked_add(tokens(), run.count()));
  }

  [[nodiscard]] std::string describe() const override { return description_; }
  [[nodiscard]] std::int64_t samples() const override {
    return (tokens() - 1) / settings_.seq_len;  // the last token of a sample needs a successor
  }
  [[nodiscard]] std::optional<double> unigram_entropy() const override { return entropy_; }
  [[nodiscard]] std::int64_t tokens() const { return ends_.empty() ? 0 : ends_.back(); }

  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    const auto& [tokens, labels, positions] = out;
    assert(index >= 0 && index < samples());
    assert(std::ssize(tokens) == settings_.seq_len && tokens.size() == labels.size());
    const std::int64_t first = index * settings_.seq_len;
    MFSDP_TRY(copy(first, tokens));
    std::copy(tokens.begin() + 1, tokens.end(), labels.begin());
    for (std::size_t i = 1; i < positions.size(); ++i)
      positions[i] = tokens[i - 1] == settings_.document_end ? 0 : positions[i - 1] + 1;
    return copy(first + settings_.seq_len, labels.last(1));
  }

  Result<void> count_unigrams() {
    UnigramCounter counter(settings_.vocab);
    std::vector<std::int32_t> piece(std::size_t{1} << 16);
    for (std::int64_t first = 0; first < tokens() && !counter.is_full();) {
      const std::int64_t count = std::min(std::ssize(piece), tokens() - first);
      const auto taken = std::span(piece).first(static_cast<std::size_t>(count));
      MFSDP_TRY(copy(first, taken));
      counter.add(taken);
      first += count;
    }
    entropy_ = counter.entropy();
    return {};
  }

 private:
  /// Tokens [first, first + out.size()) of the stream, across runs.
  [[nodiscard]] Result<void> copy(std::int64_t first, std::span<std::int32_t> out) const {
    auto run = static_cast<std::size_t>(
        std::distance(ends_.begin(), std::ranges::upper_bound(ends_, first)));
    while (!out.empty()) {
      const std::int64_t begin = run == 0 ? 0 : ends_[run - 1];
      const auto count = static_cast<std::size_t>(std::min(std::ssize(out), ends_[run] - first));
      MFSDP_TRY(copy_tokens(runs_[run], first - begin, settings_.vocab, out.first(count)));
      out = out.subspan(count);
      first = ends_[run];
      ++run;
    }
    return {};
  }

  std::vector<TokenRun> runs_;
  std::vector<std::int64_t> ends_;  ///< of each run, in tokens of the stream
  DatasetSettings settings_;
  std::string description_;
  double entropy_ = 0;
};

}  // namespace

Result<std::unique_ptr<Dataset>> make_token_stream(std::vector<TokenRun> runs,
                                                   const DatasetSettings& settings,
                                                   const std::string& where,
                                                   std::string description) {
  if (settings.masks && !settings.document_end)
    return fail(where,
                "does not say where documents end, between which attention is masked: "
                "--document-end names the token");
  auto stream = std::make_unique<TokenStream>(std::move(runs), settings, std::move(description));
  if (stream->tokens() <= settings.seq_len)
    return fail(where, fmt::format("expected more than {} tokens, one sample and the token after "
                                   "it, got {}",
                                   settings.seq_len, stream->tokens()));
  MFSDP_TRY(stream->count_unigrams());
  return stream;
}

}  // namespace mfsdp
