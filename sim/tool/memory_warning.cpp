#include "sim/tool/memory_warning.hpp"

#include <fmt/format.h>

#include "core/cli/format.hpp"

namespace mfsdp {

void warn_of_full_memory(const RunFigures& run, const Session& session) {
  if (run.memory.barely_fits()) {
    session.err << fmt::format(
        "{}: warning: the answer fits within error alone: a run may end without memory. A larger "
        "--memory-reserve keeps more free\n",
        session.tool);
    return;
  }
  if (run.memory.reserve > Bytes(0)) return;
  const Bytes free = run.memory.capacity - run.memory.deciding();
  const double part =
      static_cast<double>(free.value) / static_cast<double>(run.memory.capacity.value);
  if (part >= kAlmostNone) return;
  session.err << fmt::format(
      "{}: warning: the answer leaves {} of {} GiB free ({}); what else is on the GPU may not fit. "
      "--memory-reserve 5% keeps more free\n",
      session.tool, format_gib(free), format_gib(run.memory.capacity), format_percent(part));
}

}  // namespace mfsdp
