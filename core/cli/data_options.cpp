#include "core/cli/data_options.hpp"

#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

namespace mfsdp {

DataFlag parse_data(const std::string& text) {
  constexpr RealRange kWeights{.lowest = 0, .highest = 1e9, .with_lowest = false};
  const std::size_t colon = text.rfind(':');
  std::error_code ignored;
  if (colon == std::string::npos || colon == 0 || std::filesystem::exists(text, ignored))
    return {.path = text};
  const auto weight = parse_real(std::string_view(text).substr(colon + 1), "--data", kWeights);
  if (!weight) return {.path = text};
  return {.path = text.substr(0, colon), .weight = *weight};
}

FlagGroup data_flags(DataOptions& o) {
  constexpr Range kTokens{.lowest = 0, .highest = std::numeric_limits<std::int32_t>::max()};
  constexpr Range kEpochs{.lowest = 1, .highest = 1'000'000};
  const auto add_data = [&o](const std::string& text) -> Result<void> {
    MFSDP_LET(named, parse_path(text, "--data"));
    o.data.push_back(parse_data(named));
    return {};
  };
  Flag tokenizer = path_or_name_flag("--tokenizer", "PATH|bytes",
                                     "tokenizer.json, its folder, or \"bytes\" (--init-from's)",
                                     o.tokenizer, {std::string(kByteTokens)});
  Flag chat_template = bound_flag("--chat-template", "T",
                                  "how chats are written: chatml or llama3 (the tokenizer's)",
                                  o.chat_template, parse_text);
  chat_template.values.names = {"chatml", "llama3"};
  return {
      .title = "Data",
      .flags = {
          {.name = "--data",
           .value = "PATH[:WEIGHT]",
           .help = "text, .bin, .idx, .jsonl, a folder of them, or \"synthetic\"",
           .apply = add_data,
           .repeatable = true,
           .values = {.names = {std::string(kSynthetic)}, .paths = PathKind::file}},
          std::move(tokenizer),
          std::move(chat_template),
          switch_flag("--pack", "lines of JSONL in one sequence, with --document-mask", o.packs),
          integer_flag("--document-end", "token that ends a document of token files",
                       o.document_end, kTokens),
          integer_flag("--epochs", "of all data, instead of --steps", o.epochs, kEpochs)}};
}

}  // namespace mfsdp
