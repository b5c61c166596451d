#include "sim/search/space.hpp"

#include <algorithm>

namespace mfsdp {

std::string SearchAxis::text() const {
  std::string text = flag;
  for (const Setting& value : values) text += (&value == values.data() ? " " : ",") + value.text;
  return text;
}

std::size_t SearchSpace::size() const {
  std::size_t count = 1;
  for (const SearchAxis& axis : axes) count *= axis.values.size();
  return count;
}

std::vector<Setting> SearchSpace::combination(std::size_t i) const {
  std::vector<Setting> chosen(axes.size());
  for (std::size_t a = axes.size(); a-- > 0;) {
    chosen[a] = axes[a].values[i % axes[a].values.size()];
    i /= axes[a].values.size();
  }
  return chosen;
}

const SearchAxis* SearchSpace::find(std::string_view flag) const {
  const auto found = std::ranges::find(axes, flag, &SearchAxis::flag);
  return found == axes.end() ? nullptr : &*found;
}

bool is_open(const JobOptions& job, const SearchSpace& space, std::string_view flag) {
  return !contains(job.given, flag) && space.find(flag) == nullptr;
}

}  // namespace mfsdp
