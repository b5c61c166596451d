#include "verify/traces/rank_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mfsdp::traces {

std::string ranks_words(const std::vector<std::int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (begin > 0) text += ", ";
    text += fmt::format("{}", ranks[begin]);
    if (end - begin > 1) text += fmt::format("{}{}", end - begin == 2 ? ", " : "-", ranks[end - 1]);
    begin = end;
  }
  return text;
}

void RanksByWord::add(std::int64_t rank, std::string word) {
  rows_[std::move(word)].push_back(rank);
}

std::string RanksByWord::text() const {
  std::vector<std::pair<std::vector<std::int64_t>, std::string>> by_rank;
  for (const auto& [word, ranks] : rows_) by_rank.emplace_back(ranks, word);
  std::ranges::sort(by_rank);
  std::string text;
  for (const auto& [ranks, word] : by_rank)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", ranks_words(ranks), word);
  return text;
}

}  // namespace mfsdp::traces
