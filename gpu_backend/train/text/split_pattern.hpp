// A pre-tokenizer: text to words, by a regular expression.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// A pattern of PCRE2, compiled. Const calls may come from several threads, each with a scratch of
/// its own.
class SplitPattern {
 public:
  /// What one thread matches with.
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

  /// `pattern` as pcre2_pattern() returns it. Errors: it is no regular expression, or matches
  /// nothing at all somewhere, which would leave words without characters.
  [[nodiscard]] static Result<SplitPattern> compile(const std::string& pattern,
                                                    const std::string& where);

  /// The end of the first word of `text` (UTF-8, not empty) from byte `begin` on: a match, or what
  /// stands before the next match ("Isolated"). Looks behind `begin`. Errors: the text makes the
  /// pattern search longer than PCRE2 allows.
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
