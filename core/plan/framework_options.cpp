#include "core/plan/framework_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <vector>

#include "core/base/amount.hpp"

namespace mfsdp {
namespace {

constexpr const char* kOptionFlag = "--engine-option";

const FrameworkOption* option_of(EngineKind engine, FrameworkWord word) {
  const auto found = std::ranges::find_if(kFrameworkOptions, [&](const FrameworkOption& option) {
    return option.engine == engine && option.word == word;
  });
  return found == kFrameworkOptions.end() ? nullptr : &*found;
}

std::vector<std::string_view> words_of(EngineKind engine) {
  std::vector<std::string_view> words;
  for (const FrameworkOption& option : kFrameworkOptions)
    if (option.engine == engine) words.push_back(to_string(option.word));
  return words;
}

std::optional<std::int64_t> switch_value(std::string_view text) {
  if (text == "true") return 1;
  if (text == "false") return 0;
  return std::nullopt;
}

std::string value_text(const FrameworkOption& option, std::int64_t value) {
  if (option.is_switch) return value != 0 ? "true" : "false";
  return std::to_string(value);
}

}  // namespace

Result<void> FrameworkOptions::set(std::string_view text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string_view::npos)
    return fail(kOptionFlag, fmt::format("'{}' is not NAME=VALUE such as overlap_comm=true", text));
  const std::string_view name = text.substr(0, sign);
  const std::string_view value = text.substr(sign + 1);
  const auto word = parse<FrameworkWord>(name);
  if (!word)
    return fail(kOptionFlag,
                fmt::format("'{}' is not one of {}", name, name_list<FrameworkWord>()));
  // Rows of one word take the same values.
  const FrameworkOption& option =
      *std::ranges::find(kFrameworkOptions, *word, &FrameworkOption::word);
  if (option.is_switch) {
    const auto on = switch_value(value);
    if (!on) return fail(kOptionFlag, fmt::format("{} is true or false, not '{}'", name, value));
    given_[*word] = *on;
    return {};
  }
  const auto number = parse_count(value);
  if (!number || *number < option.least || *number > kMostOfOption)
    return fail(kOptionFlag, fmt::format("{} is a whole number from {} to {} such as 5e8, not '{}'",
                                         name, option.least, kMostOfOption, value));
  given_[*word] = *number;
  return {};
}

Result<void> FrameworkOptions::check(EngineKind engine) const {
  for (const auto& [word, value] : given_) {
    if (option_of(engine, word) != nullptr) continue;
    const std::vector<std::string_view> words = words_of(engine);
    return fail(kOptionFlag,
                fmt::format("--engine {} has no {}; {}", to_string(engine), to_string(word),
                            words.empty() ? "it has no options"
                                          : fmt::format("it has {}", fmt::join(words, ", "))));
  }
  return {};
}

std::int64_t FrameworkOptions::number(EngineKind engine, FrameworkWord word) const {
  if (const auto found = given_.find(word); found != given_.end()) return found->second;
  const FrameworkOption* option = option_of(engine, word);
  assert(option != nullptr);
  return option->fallback;
}

std::string FrameworkOptions::statement(EngineKind engine) const {
  std::vector<std::string> set;
  std::vector<std::string> defaults;
  for (const FrameworkOption& option : kFrameworkOptions)
    if (option.engine == engine)
      (has(option.word) ? set : defaults)
          .push_back(fmt::format("{} {}", to_string(option.word),
                                 value_text(option, number(engine, option.word))));
  if (set.empty() && defaults.empty()) return "";
  if (!defaults.empty()) set.push_back(fmt::format("by default {}", fmt::join(defaults, ", ")));
  return fmt::format("options of {}: {}", to_string(engine), fmt::join(set, ", "));
}

}  // namespace mfsdp
