#include "gpu_backend/train/data/sft_jsonl.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <deque>
#include <string_view>
#include <utility>

#include "gpu_backend/train/data/byte_tokens.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"
#include "gpu_backend/train/data/pack.hpp"
#include "gpu_backend/train/data/sft_line.hpp"
#include "gpu_backend/train/data/unigram.hpp"

namespace mfsdp {
namespace {

/// Bytes of a line. Reading one takes some ten times as much memory.
constexpr std::size_t kMostLineBytes = std::size_t{16} << 20;

/// Tokens of one line that stand in one sample.
struct LinePiece {
  std::uint32_t file = 0;   ///< index into the files
  std::size_t number = 0;   ///< of the line; the file's first is 1
  std::string_view text;    ///< of the line
  std::size_t first = 0;    ///< token
  std::int64_t length = 0;  ///< tokens
};

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

class SftSamples final : public Dataset {
 public:
  SftSamples(const DatasetSettings& settings, std::string where)
      : settings_(settings),
        where_(std::move(where)),
        encoder_(settings.text),
        counter_(settings.vocab) {
    const std::int32_t token = settings.text ? settings.text->padding : kPadToken;
    if (token < settings.vocab) padding_ = token;
  }

  Result<void> add(const std::filesystem::path& path) {
    MFSDP_LET(file, MappedFile::open(path, "lines of JSON"));
    files_.push_back(std::move(file));
    std::string_view rest = files_.back().text();  // of the mapping, which does not move
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.size() > kMostLineBytes)
        return fail(fmt::format("{}:{}", files_.back().name(), number),
                    fmt::format("a line of {} bytes: expected at most {} MiB", line.size(),
                                kMostLineBytes >> 20));
      if (!is_blank(line)) MFSDP_TRY(add_line(line, number));
    }
    return {};
  }

  /// When all files have been added.
  void arrange() {
    if (!settings_.packs) return;
    std::vector<std::int64_t> lengths;
    for (const LinePiece& piece : pieces_) lengths.push_back(piece.length);
    packed_ = pack(lengths, settings_.seq_len);
  }

  [[nodiscard]] std::string describe() const override {
    constexpr std::array<std::string_view, 3> kKinds{"samples of prompt and response", "documents",
                                                     "samples of tokens"};
    std::vector<std::string> parts;
    for (std::size_t kind = 0; kind < kKinds.size(); ++kind)
      if (counts_[kind] > 0) parts.push_back(fmt::format("{} {}", counts_[kind], kKinds[kind]));
    if (parts.empty()) parts.push_back(fmt::format("0 {}", kKinds[0]));
    std::string text = fmt::format("{}", fmt::join(parts, ", "));
    if (cut_ > 0) text += fmt::format("; {} cut to {} tokens", cut_, settings_.seq_len);
    if (split_ > 0)
      text += fmt::format("; {} longer than {} tokens, in pieces", split_, settings_.seq_len);
    if (left_out_ > 0)
      text +=
          fmt::format("; {} left out, their prompts fill {} tokens", left_out_, settings_.seq_len);
    if (settings_.packs)
      text +=
          fmt::format("; packed into {} sequences, attention is masked between them", samples());
    return text;
  }
  [[nodiscard]] std::int64_t samples() const override {
    return settings_.packs ? std::ssize(packed_) : std::ssize(pieces_);
  }
  [[nodiscard]] std::optional<double> unigram_entropy() const override {
    return counter_.entropy();
  }

  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    const auto& [tokens, labels, positions] = out;
    assert(index >= 0 && index < samples());
    assert(std::ssize(tokens) == settings_.seq_len && tokens.size() == labels.size());
    const auto sample = static_cast<std::size_t>(index);
    std::size_t filled = 0;
    const auto add = [&](const LinePiece& piece) -> Result<void> {
      const auto length = static_cast<std::size_t>(piece.length);
      MFSDP_TRY(read_piece(piece, out.tokens.subspan(filled, length),
                           out.labels.subspan(filled, length)));
      if (!out.positions.empty()) count_positions(out.positions.subspan(filled, length));
      filled += length;
      return {};
    };
    if (!settings_.packs) {
      MFSDP_TRY(add(pieces_[sample]));
    } else {
      for (const std::uint32_t piece : packed_[sample]) MFSDP_TRY(add(pieces_[piece]));
    }
    std::ranges::fill(tokens.subspan(filled), padding_);
    std::ranges::fill(labels.subspan(filled), kIgnoreIndex);
    if (!positions.empty()) count_positions(positions.subspan(filled));
    return {};
  }

 private:
  [[nodiscard]] Result<void> read_piece(const LinePiece& piece, std::span<std::int32_t> tokens,
                                        std::span<std::int32_t> labels) const {
    const MappedFile& file = files_[piece.file];
    MFSDP_TRY(file.check_unchanged());
    MFSDP_LET(sequence, encoder_.encode(piece.text, file.name(), piece.number));
    fill_sft_piece(sequence, piece.first, tokens, labels);
    return {};
  }

  Result<void> add_line(std::string_view text, std::size_t number) {
    const MappedFile& file = files_.back();
    MFSDP_LET(sequence, encoder_.encode(text, file.name(), number));
    MFSDP_TRY(check_tokens(sequence, fmt::format("{}:{}", file.name(), number)));
    LinePiece piece{.file = static_cast<std::uint32_t>(files_.size() - 1),
                    .number = number,
                    .text = text,
                    .first = 0,
                    .length = 0};
    if (sequence.kind == LineKind::answers) {
      add_answers(sequence, piece);
    } else {
      add_pieces(sequence, piece);
    }
    return {};
  }

  /// Bytes need a vocabulary for them; others' tokens only their own.
  Result<void> check_tokens(const SftSequence& sequence, const std::string& line) {
    if (!settings_.text && sequence.kind != LineKind::tokens)
      MFSDP_TRY(check_byte_vocab(settings_, where_));
    for (const std::int32_t token : sequence.tokens)
      if (token >= settings_.vocab)
        return fail(line, fmt::format("expected a token of the model's vocabulary, 0 to {}, got {}",
                                      settings_.vocab - 1, token));
    return {};
  }

  /// One piece that is cut: an answer is worth nothing without its prompt.
  void add_answers(const SftSequence& sequence, LinePiece piece) {
    const auto fitting = static_cast<std::size_t>(settings_.seq_len) + 1;
    const std::size_t kept = std::min(sequence.tokens.size(), fitting);
    if (count_learned(sequence, 1, kept) == 0) {
      ++left_out_;
      return;
    }
    ++counts_[static_cast<std::size_t>(sequence.kind)];
    if (kept < sequence.tokens.size()) ++cut_;
    piece.length = std::min(std::ssize(sequence.tokens), settings_.seq_len);
    pieces_.push_back(piece);
  }

  /// As many pieces as it takes, those without loss left out: the label of a piece's last token is
  /// the next piece's first.
  void add_pieces(const SftSequence& sequence, LinePiece piece) {
    const std::size_t size = sequence.tokens.size();
    const auto step = static_cast<std::size_t>(settings_.seq_len);
    bool is_learned = false;
    for (std::size_t first = 0; first + 1 < size; first += step) {
      if (count_learned(sequence, first + 1, std::min(first + step + 1, size)) == 0) continue;
      is_learned = true;
      piece.first = first;
      piece.length = static_cast<std::int64_t>(std::min(step, size - first));
      pieces_.push_back(piece);
    }
    if (!is_learned) return;
    ++counts_[static_cast<std::size_t>(sequence.kind)];
    if (size > step + 1) ++split_;
  }

  /// Labels among tokens [first, end); they are counted as unigrams.
  std::size_t count_learned(const SftSequence& sequence, std::size_t first, std::size_t end) {
    std::vector<std::int32_t> learned;
    for (std::size_t i = first; i < end; ++i)
      if (sequence.learned[i]) learned.push_back(sequence.tokens[i]);
    counter_.add(learned);
    return learned.size();
  }

  DatasetSettings settings_;
  std::string where_;
  LineEncoder encoder_;
  std::int32_t padding_ = 0;  ///< never with loss: any token of the vocabulary does
  std::deque<MappedFile> files_;
  std::vector<LinePiece> pieces_;
  std::vector<std::vector<std::uint32_t>> packed_;  ///< pieces of each sample
  std::array<std::int64_t, 3> counts_{};            ///< lines by kind
  std::int64_t cut_ = 0;
  std::int64_t split_ = 0;
  std::int64_t left_out_ = 0;
  UnigramCounter counter_;  ///< of labels: what is learned
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_sft_jsonl(const std::vector<std::filesystem::path>& files,
                                                const DatasetSettings& settings,
                                                const std::string& where) {
  auto samples = std::make_unique<SftSamples>(settings, where);
  for (const std::filesystem::path& path : files) MFSDP_TRY(samples->add(path));
  samples->arrange();
  if (samples->samples() == 0)
    return fail(where, fmt::format("expected a line whose response begins within {} tokens; {}",
                                   settings.seq_len, samples->describe()));
  return samples;
}

}  // namespace mfsdp
