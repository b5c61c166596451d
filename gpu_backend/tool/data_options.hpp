// The flags of mfsdp-exec that describe the training data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/flags.hpp"

namespace mfsdp {

/// The value of --data for random tokens.
inline constexpr std::string_view kSynthetic = "synthetic";

/// The value of --tokenizer for text whose tokens are its bytes.
inline constexpr std::string_view kByteTokens = "bytes";

/// One value of --data: FILE, or FILE:WEIGHT if several are mixed.
struct DataFlag {
  std::string path;   ///< file, folder, or kSynthetic
  double weight = 1;  ///< above 0
};

struct DataOptions {
  std::vector<DataFlag> data;
  std::optional<std::string> tokenizer;      ///< file, folder, name in scenarios, or kByteTokens
  std::optional<std::string> chat_template;  ///< name
  bool packs = false;  ///< several lines in one sequence; attention is masked between them
  std::optional<std::int64_t> document_end;  ///< token that ends a document
  std::optional<std::int64_t> epochs;        ///< passes over all data; instead of a number of steps
};

/// PATH or PATH:WEIGHT. The text after the last colon is a weight if it is a number above 0 and no
/// file has the full name. It is an error if it is no such number and the file before the colon
/// exists.
[[nodiscard]] Result<DataFlag> parse_data(const std::string& text);

[[nodiscard]] FlagGroup data_flags(DataOptions& options);

}  // namespace mfsdp
