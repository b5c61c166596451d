// Lists of ranks in messages. Private to the rules of records.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mfsdp::traces {

/// "rank 3", "ranks 0-2, 5". Ranks must be ascending.
[[nodiscard]] std::string ranks_words(const std::vector<std::int64_t>& ranks);

/// Ranks grouped by a word: "ranks 0-2: all_reduce; rank 3: broadcast".
class RanksByWord {
 public:
  void add(std::int64_t rank, std::string word);
  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, std::vector<std::int64_t>> rows_;
};

}  // namespace mfsdp::traces
