// Ids to positions in a program's lists. Ids may have gaps, so that plans can be edited.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Position of each id in a list of structs with an `id` field; nothing for ids that it lacks.
template <class Key>
class IdIndex {
 public:
  template <class T>
  explicit IdIndex(const std::vector<T>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) insert(list[i].id, i);
  }
  IdIndex() = default;

  /// False when the id is there already.
  bool insert(Key id, std::size_t position) {
    if (id.value >= positions_.size()) positions_.resize(id.value + 1, kAbsent);
    if (positions_[id.value] != kAbsent) return false;
    positions_[id.value] = static_cast<std::uint32_t>(position);
    return true;
  }

  [[nodiscard]] std::optional<std::size_t> find(Key id) const {
    if (id.value >= positions_.size() || positions_[id.value] == kAbsent) return std::nullopt;
    return positions_[id.value];
  }

  /// The position of an id that is known to be there.
  [[nodiscard]] std::size_t operator[](Key id) const { return positions_[id.value]; }

 private:
  static constexpr std::uint32_t kAbsent = ~std::uint32_t{0};
  std::vector<std::uint32_t> positions_;
};

}  // namespace mfsdp
