#include "gpu_backend/train/text/split_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <utility>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

struct FreePcre2 {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <class T>
using Pcre2Pointer = std::unique_ptr<T, FreePcre2>;

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct SplitPattern::Code {
  Pcre2Pointer<pcre2_code> code;
  std::string where;
};

struct SplitPattern::Scratch::Data {
  Pcre2Pointer<pcre2_match_data> match;
  Pcre2Pointer<pcre2_match_context> context;
  Pcre2Pointer<pcre2_jit_stack> stack;
};

SplitPattern::Scratch::Scratch(const SplitPattern& pattern) : data_(std::make_unique<Data>()) {
  constexpr std::size_t kLeastStack = std::size_t{32} << 10;
  constexpr std::size_t kMostStack = std::size_t{16} << 20;
  data_->match.reset(pcre2_match_data_create_from_pattern(pattern.code_->code.get(), nullptr));
  data_->context.reset(pcre2_match_context_create(nullptr));
  data_->stack.reset(pcre2_jit_stack_create(kLeastStack, kMostStack, nullptr));
  pcre2_jit_stack_assign(data_->context.get(), nullptr, data_->stack.get());
}
SplitPattern::Scratch::Scratch(Scratch&&) noexcept = default;
SplitPattern::Scratch& SplitPattern::Scratch::operator=(Scratch&&) noexcept = default;
SplitPattern::Scratch::~Scratch() = default;

SplitPattern::SplitPattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

Result<SplitPattern> SplitPattern::compile(const std::string& pattern, const std::string& where) {
  int error = 0;
  std::size_t place = 0;
  auto code = std::make_unique<Code>();
  code->where = where;
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr));
  if (!code->code)
    return fail(where, fmt::format("\"{}\" is no regular expression: {} at its byte {}",
                                   printable(pattern), pcre2_message(error), place));
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0)
    return fail(where, fmt::format("\"{}\" matches between two characters: expected a pattern of "
                                   "words",
                                   printable(pattern)));
  // PCRE2 interprets the pattern if it has no JIT compiler for this CPU.
  static_cast<void>(pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE));
  return SplitPattern(std::move(code));
}

Result<std::size_t> SplitPattern::word_end(std::string_view text, std::size_t begin,
                                           Scratch& scratch) const {
  const Scratch::Data& data = *scratch.data_;
  const int found =
      pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                  PCRE2_NO_UTF_CHECK, data.match.get(), data.context.get());
  if (found == PCRE2_ERROR_NOMATCH) return text.size();
  if (found < 0)
    return fail(code_->where, fmt::format("the pattern fails at byte {} of {}: {}", begin,
                                          text.size(), pcre2_message(found)));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.match.get());
  return bounds[0] > begin ? bounds[0] : bounds[1];
}

}  // namespace mfsdp
