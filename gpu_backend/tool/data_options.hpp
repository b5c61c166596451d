// The flags of mfsdp-exec that say what it trains on.
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

/// The value of --tokenizer for text whose bytes are its tokens.
inline constexpr std::string_view kByteTokens = "bytes";

/// One of --data: FILE, or FILE:WEIGHT where several are mixed.
struct DataFlag {
  std::string path;   ///< file, folder, or kSynthetic
  double weight = 1;  ///< above 0
};

struct DataOptions {
  std::vector<DataFlag> data;
  std::optional<std::string> tokenizer;      ///< file, folder, name in scenarios, or kByteTokens
  std::optional<std::string> chat_template;  ///< name
  bool packs = false;  ///< several lines in one sequence: attention is masked between them
  std::optional<std::int64_t> document_end;  ///< token that ends a document
  std::optional<std::int64_t> epochs;        ///< of all data; instead of a number of steps
};

/// PATH or PATH:WEIGHT. What follows the last colon is a weight if it is a number above 0 and there
/// is no file of the whole name; an error if it is none, and the file before the colon is there.
[[nodiscard]] Result<DataFlag> parse_data(const std::string& text);

[[nodiscard]] FlagGroup data_flags(DataOptions& options);

}  // namespace mfsdp
