// Byte pair encoding: merges the bytes of a word to tokens in order of the merges' rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// Hash of strings that accepts string views without a copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

/// A pair of tokens and the token that replaces it.
struct Merge {
  std::uint64_t pair = 0;  ///< left token << 32 | right token
  std::int32_t rank = -1;  ///< smaller ranks are applied first; below 0: no merge
  std::int32_t merged = 0;
};

/// Merges by pair, in an open-addressing table: looked up for every pair of neighbours.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges);
  /// An existing pair gets the new rank, as in Hugging Face's tokenizers.
  void insert(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t merged);
  /// Null where the two do not merge.
  [[nodiscard]] const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Merge> slots_;  ///< a power of two, at least half of them free
};

/// Vocabulary and merges. Const calls may come from several threads.
class Bpe {
 public:
  /// `by_bytes`: token ids by the bytes of the tokens. `ignore_merges`: a word that is itself a
  /// token becomes that token even if no merges produce it. Errors: a byte that is no token.
  [[nodiscard]] static Result<Bpe> create(TextMap<std::int32_t> by_bytes, MergeTable merges,
                                          bool ignore_merges, const std::string& where);

  /// Appends the tokens of a word, which is not empty. The applicable merge of the lowest rank is
  /// applied first; among equal ranks, the leftmost. O(n log n) for n bytes.
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const;

 private:
  Bpe(TextMap<std::int32_t> by_bytes, MergeTable merges, bool ignore_merges)
      : by_bytes_(std::move(by_bytes)), merges_(std::move(merges)), ignore_merges_(ignore_merges) {}

  TextMap<std::int32_t> by_bytes_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_token_{};
  bool ignore_merges_ = false;
};

}  // namespace mfsdp
