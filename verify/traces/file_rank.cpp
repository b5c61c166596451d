#include "verify/traces/file_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/text.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kDigits = "0123456789";

std::optional<std::int64_t> number_at(std::string_view text, std::size_t begin) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// "trace.3" ends in a rank, "trace3.json" in an extension.
std::string_view without_extension(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return name;
  const bool is_number = name.substr(dot + 1).find_first_not_of(kDigits) == std::string_view::npos;
  return is_number ? name : name.substr(0, dot);
}

}  // namespace

std::optional<std::int64_t> rank_in_name(std::string_view name) {
  constexpr std::string_view kRank = "rank";
  const std::string stem = lower_case(without_extension(name));
  if (const std::size_t word = stem.rfind(kRank); word != std::string::npos) {
    const std::size_t digit = stem.find_first_not_of("_-.=", word + kRank.size());
    if (digit != std::string::npos && kDigits.find(stem[digit]) != std::string_view::npos)
      return number_at(stem, digit);
  }
  const std::size_t last = stem.find_last_of(kDigits);
  if (last == std::string::npos) return std::nullopt;
  const std::size_t before = stem.find_last_not_of(kDigits, last);
  return number_at(stem, before == std::string::npos ? 0 : before + 1);
}

std::vector<std::optional<std::int64_t>> ranks_of_files(
    std::span<const std::filesystem::path> files) {
  std::vector<std::optional<std::int64_t>> ranks;
  for (const std::filesystem::path& file : files)
    ranks.push_back(rank_in_name(file.filename().string()));
  const bool some = std::ranges::any_of(ranks, [](const auto& rank) { return rank.has_value(); });
  if (some) return ranks;
  for (std::size_t i = 0; i < files.size(); ++i) ranks[i] = static_cast<std::int64_t>(i);
  return ranks;
}

tl::unexpected<Error> fail_of_one_rank(const std::string& where, std::int64_t rank,
                                       const std::string& other) {
  return fail(where,
              fmt::format("has rank {}, as {}: expected one file for each rank", rank, other));
}

}  // namespace mfsdp::traces
