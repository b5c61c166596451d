#include "verify/traces/step_windows.hpp"

#include <algorithm>
#include <map>

namespace mfsdp::traces {

std::vector<StepWindow> step_windows(const std::vector<StepMark>& marks,
                                     std::optional<std::int32_t> device) {
  std::map<std::int64_t, StepWindow> by_step;
  for (const StepMark& mark : marks) {
    if (mark.device != device) continue;
    const auto [at, is_new] =
        by_step.try_emplace(mark.step, StepWindow{mark.step, mark.begin, mark.end});
    at->second.begin = std::min(at->second.begin, mark.begin);
    at->second.end = std::max(at->second.end, mark.end);
  }
  std::vector<StepWindow> windows;
  for (const auto& [step, window] : by_step) windows.push_back(window);
  std::ranges::stable_sort(windows, {}, &StepWindow::begin);
  for (std::size_t i = 1; i < windows.size(); ++i) windows[i - 1].end = windows[i].begin;
  return windows;
}

}  // namespace mfsdp::traces
