#include "verify/mutation/inert_fields.hpp"

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

// Labels for people first, then what is free within bounds that the proofs keep.
constexpr std::array kInert{
    InertField{"meta*", "about the plan, no part of it: not hashed"},
    InertField{"*.ops[]*.name", "a label: timelines and messages show it"},
    InertField{"*.segments[].name", "a label"},
    InertField{"buffers[]*.name", "a label; what a buffer is for is in holds and in its ops"},
    InertField{"communicators[].purpose", "a label"},
    InertField{"events[].name", "a label"},
    InertField{"pools[].name", "a label"},
    InertField{"units[]*.name", "a label"},
    InertField{"classes[]*.role", "a label of the ranks that run the plan"},
    InertField{"*.kernel{*.flops", "for prices and deadlines: nothing is computed from it"},
    InertField{"buffers[]*.category", "for accounts of memory"},
    InertField{"pools[].lower_bound", "for reports: how near to its least a pool is"},
    InertField{"config.allocator", "how offsets were found: the proofs see the offsets"},
    InertField{"config.prefetch", "how the order was made: the proofs see the order"},
    InertField{"config.grad_slots", "how the order was made: the proofs see the order"},
};

bool matches(std::string_view pattern, std::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  const std::string_view head = pattern.substr(0, star);
  const std::string_view rest = pattern.substr(star + 1);
  if (!text.starts_with(head)) return false;
  for (std::size_t at = head.size(); at <= text.size(); ++at)
    if (matches(rest, text.substr(at))) return true;
  return false;
}

}  // namespace

std::span<const InertField> inert_fields() { return kInert; }

const InertField* find_inert(std::string_view field) {
  const auto* const found = std::ranges::find_if(
      kInert, [&](const InertField& inert) { return matches(inert.field, field); });
  return found == kInert.end() ? nullptr : &*found;
}

}  // namespace mfsdp
