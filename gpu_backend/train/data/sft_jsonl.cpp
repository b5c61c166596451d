#include "gpu_backend/train/data/sft_jsonl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

#include "gpu_backend/train/data/byte_tokens.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"
#include "gpu_backend/train/data/sft_line.hpp"
#include "gpu_backend/train/data/unigram.hpp"

namespace mfsdp {
namespace {

struct Line {
  std::size_t file = 0;    ///< index into the files
  std::size_t number = 0;  ///< the file's first is 1
  std::string_view text;
};

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

class SftSamples final : public Dataset {
 public:
  explicit SftSamples(const DatasetSettings& settings)
      : settings_(settings), counter_(settings.vocab) {}

  Result<void> add(const std::filesystem::path& path) {
    MFSDP_LET(file, MappedFile::open(path, "lines of JSON"));
    files_.push_back(std::move(file));
    std::string_view rest = files_.back().text();  // of the mapping, which does not move
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const Line line{files_.size() - 1, number, rest.substr(0, rest.find('\n'))};
      rest.remove_prefix(std::min(rest.size(), line.text.size() + 1));
      if (!is_blank(line.text)) MFSDP_TRY(add(line));
    }
    return {};
  }

  [[nodiscard]] std::string describe() const override {
    std::string text = fmt::format("{} samples of prompt and response", lines_.size());
    if (cut_ > 0) text += fmt::format("; {} cut to {} tokens", cut_, settings_.seq_len);
    if (left_out_ > 0)
      text +=
          fmt::format("; {} left out, their prompts fill {} tokens", left_out_, settings_.seq_len);
    return text;
  }
  [[nodiscard]] std::int64_t samples() const override { return std::ssize(lines_); }
  [[nodiscard]] std::optional<double> unigram_entropy() const override {
    return counter_.entropy();
  }

  [[nodiscard]] Result<void> read(std::int64_t index, std::span<std::int32_t> tokens,
                                  std::span<std::int32_t> labels) const override {
    assert(index >= 0 && index < samples());
    assert(std::ssize(tokens) == settings_.seq_len && tokens.size() == labels.size());
    const Line& line = lines_[static_cast<std::size_t>(index)];
    const MappedFile& file = files_[line.file];
    MFSDP_TRY(file.check_unchanged());
    MFSDP_LET(sequence, parse_sft_line(line.text, file.name(), line.number));
    fill_sft_sample(sequence, tokens, labels);
    return {};
  }

 private:
  Result<void> add(const Line& line) {
    MFSDP_LET(sequence, parse_sft_line(line.text, files_[line.file].name(), line.number));
    const auto fitting = static_cast<std::size_t>(settings_.seq_len) + 1;
    const std::size_t kept = std::min(sequence.tokens.size(), fitting);
    std::vector<std::int32_t> learned;
    for (std::size_t i = 1; i < kept; ++i)
      if (sequence.learned[i]) learned.push_back(sequence.tokens[i]);
    if (learned.empty()) {
      ++left_out_;
      return {};
    }
    if (kept < sequence.tokens.size()) ++cut_;
    counter_.add(learned);
    lines_.push_back(line);
    return {};
  }

  DatasetSettings settings_;
  std::vector<MappedFile> files_;
  std::vector<Line> lines_;
  std::int64_t cut_ = 0;
  std::int64_t left_out_ = 0;
  UnigramCounter counter_;  ///< of labels: what is learned
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_sft_jsonl(const std::vector<std::filesystem::path>& files,
                                                const DatasetSettings& settings,
                                                const std::string& where) {
  MFSDP_TRY(check_byte_vocab(settings, where));
  auto samples = std::make_unique<SftSamples>(settings);
  for (const std::filesystem::path& path : files) MFSDP_TRY(samples->add(path));
  if (samples->samples() == 0)
    return fail(where, fmt::format("expected a line whose response begins within {} tokens; {}",
                                   settings.seq_len, samples->describe()));
  return samples;
}

}  // namespace mfsdp
