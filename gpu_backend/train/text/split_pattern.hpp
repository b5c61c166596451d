// A pre-tokenizer: splits text into words with a regular expression.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// A compiled pattern of PCRE2. Several threads may call const functions, each with its own
/// scratch.
class SplitPattern {
 public:
  /// Working memory of one thread.
  class Scratch {
   public:
    explicit Scratch(const SplitPattern& pattern);
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch();

   private:
    friend class SplitPattern;
    struct Data;
    std::unique_ptr<Data> data_;
  };

  /// `pattern`: the result of pcre2_pattern(). Errors: it is no regular expression, or it matches
  /// the empty string somewhere, which would produce empty words.
  [[nodiscard]] static Result<SplitPattern> compile(const std::string& pattern,
                                                    const std::string& where);

  /// The end of the first word of `text` (UTF-8, not empty) from byte `begin` on: a match, or the
  /// text before the next match ("Isolated"). May look at text before `begin`. Errors: the search
  /// exceeds PCRE2's limits.
  [[nodiscard]] Result<std::size_t> word_end(std::string_view text, std::size_t begin,
                                             Scratch& scratch) const;

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  SplitPattern(const SplitPattern&) = delete;
  SplitPattern& operator=(const SplitPattern&) = delete;
  ~SplitPattern();

 private:
  struct Code;
  explicit SplitPattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace mfsdp
