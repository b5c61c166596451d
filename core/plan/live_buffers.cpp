#include "core/plan/live_buffers.hpp"

#include <cstdint>
#include <map>

#include "core/plan/instances.hpp"

namespace mfsdp {

void state_live_buffers(Plan& plan, std::span<const BufferId> first) {
  std::map<BufferId, std::int64_t> live;  // instances
  for (const BufferId id : first) ++live[id];
  const auto now = [&] {
    std::vector<BufferId> buffers;
    for (const auto& [id, instances] : live)
      buffers.insert(buffers.end(), static_cast<std::size_t>(instances), id);
    return buffers;
  };
  std::vector<BufferId> before = now();
  for (std::size_t s = 0; s < plan.segments.size(); ++s) {
    Segment& segment = plan.segments[s];
    // A segment without calls leaves live what it found, in each repetition.
    for (std::int64_t i = 0; i < (segment.calls.empty() ? 1 : segment.repeat); ++i)
      for_each_op_of_run(plan, s, [&](const Op& op) {
        if (const auto* acquire = std::get_if<Acquire>(&op.body)) ++live[acquire->buffer];
        if (const auto* release = std::get_if<Release>(&op.body))
          if (std::int64_t& instances = live[release->buffer]; instances > 0) --instances;
      });
    segment.live_in = std::move(before);
    segment.live_out = before = now();
  }
}

}  // namespace mfsdp
