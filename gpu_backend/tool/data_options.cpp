#include "gpu_backend/tool/data_options.hpp"

#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

namespace mfsdp {

Result<DataFlag> parse_data(const std::string& text) {
  constexpr RealRange kWeights{.lowest = 0, .highest = 1e9, .with_lowest = false};
  const std::size_t colon = text.rfind(':');
  std::error_code ignored;
  if (colon == std::string::npos || colon == 0 || std::filesystem::exists(text, ignored))
    return DataFlag{.path = text};
  const std::string path = text.substr(0, colon);
  const auto weight = parse_real(std::string_view(text).substr(colon + 1), "--data", kWeights);
  if (weight) return DataFlag{.path = path, .weight = *weight};
  if (std::filesystem::exists(path, ignored)) return tl::unexpected<Error>(weight.error());
  return DataFlag{.path = text};
}

FlagGroup data_flags(DataOptions& o) {
  constexpr Range kTokens{.lowest = 0, .highest = std::numeric_limits<std::int32_t>::max()};
  constexpr Range kEpochs{.lowest = 1, .highest = 1'000'000};
  const auto add_data = [&o](const std::string& text) -> Result<void> {
    MFSDP_LET(named, parse_path(text, "--data"));
    MFSDP_LET(flag, parse_data(named));
    o.data.push_back(std::move(flag));
    return {};
  };
  Flag tokenizer =
      path_or_name_flag("--tokenizer", "PATH|bytes",
                        "tokenizer.json, its folder, or \"bytes\" (default: from --init-from)",
                        o.tokenizer, {std::string(kByteTokens)});
  Flag chat_template = bound_flag(
      "--chat-template", "T", "how chats are written: chatml or llama3 (default: the tokenizer's)",
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
