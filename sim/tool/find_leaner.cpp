#include "sim/tool/find_leaner.hpp"

#include <string>
#include <utility>

#include "sim/tool/savers.hpp"

namespace mfsdp {
namespace {

bool has_choice(const SimOptions& options, const char* flag) {
  return traits_of(options.engine).runs_plans && !contains(options.given, "--engine") &&
         !contains(options.given, flag);
}

}  // namespace

std::vector<SweepAxis> leaner_axes(const SimOptions& options) {
  const PlanConfig usual;
  std::vector<SweepAxis> axes;
  const auto add = [&](const char* flag, std::int64_t value, std::int64_t least) {
    if (has_choice(options, flag))
      axes.push_back({.flag = flag, .values = {std::to_string(value), std::to_string(least)}});
  };
  add("--prefetch", usual.prefetch, kLeastPrefetch);
  add("--grad-slots", usual.grad_slots, kLeastGradSlots);
  return axes;
}

Sweep leaner(const Sweep& sweep, const std::vector<SweepAxis>& axes) {
  Sweep lean{.axes = sweep.axes, .arguments = sweep.arguments};
  for (const SweepAxis& axis : axes) {
    lean.axes.push_back(axis);
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& arguments : lean.arguments)
      for (const std::string& value : axis.values) {
        longer.push_back(arguments);
        longer.back().insert(longer.back().end(), {axis.flag, value});
      }
    lean.arguments = std::move(longer);
  }
  return lean;
}

}  // namespace mfsdp
