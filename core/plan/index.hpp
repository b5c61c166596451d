// Maps ids to positions in a program's lists. Ids may have gaps, so that plans can be edited.
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Position of each id in a list of structs with an `id` field; none for unknown ids. Memory is
/// proportional to the number of ids, plus at most 256 KiB, independent of their values.
template <class Key>
class IdIndex {
 public:
  /// The first of two equal ids is used.
  template <class T>
  explicit IdIndex(const std::vector<T>& list)
      : most_(static_cast<std::uint32_t>(
            std::min<std::size_t>(std::max<std::size_t>(kTable, 2 * list.size()), kAbsent))) {
    for (std::size_t i = 0; i < list.size(); ++i) insert(list[i].id, i);
  }
  IdIndex() = default;

  /// False if the id exists already.
  bool insert(Key id, std::size_t position) {
    if (id.value >= most_) return far_.emplace(id, position).second;
    if (id.value >= table_.size()) table_.resize(id.value + 1, kAbsent);
    if (table_[id.value] != kAbsent) return false;
    table_[id.value] = static_cast<std::uint32_t>(position);
    return true;
  }

  [[nodiscard]] std::optional<std::size_t> find(Key id) const {
    if (id.value >= most_) {
      const auto found = far_.find(id);
      if (found == far_.end()) return std::nullopt;
      return found->second;
    }
    if (id.value >= table_.size() || table_[id.value] == kAbsent) return std::nullopt;
    return table_[id.value];
  }

  /// The position of an id that must exist.
  [[nodiscard]] std::size_t operator[](Key id) const {
    return id.value < most_ ? table_[id.value] : far_.at(id);
  }

 private:
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};
  /// Ids below this, or below twice the length of the list, are looked up in a table, as the
  /// builder numbers from 0. A file may contain any other ids.
  static constexpr std::uint32_t kTable = std::uint32_t{1} << 16;

  std::uint32_t most_ = kTable;
  std::vector<std::uint32_t> table_;
  std::unordered_map<Key, std::size_t> far_;
};

}  // namespace mfsdp
