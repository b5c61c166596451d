#include "core/plan/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mfsdp {

std::vector<std::uint32_t> class_of_ranks(const Job& job) {
  const Mesh& mesh = job.programs[0].config.mesh;
  std::vector<std::uint32_t> classes(static_cast<std::size_t>(mesh.world_size()), 0);
  if (job.programs.size() == 1) return classes;
  for (std::size_t rank = 0; rank < classes.size(); ++rank)
    for (std::size_t c = 0; c < job.programs.size(); ++c)
      if (runs_on(job.programs[c], static_cast<std::int64_t>(rank)))
        classes[rank] = static_cast<std::uint32_t>(c);
  return classes;
}

bool runs_on(const Program& program, std::int64_t rank) {
  return std::ranges::all_of(program.classes[0].at, [&](const MeshPlace& place) {
    return program.config.mesh.index(rank, place.axis) == place.index;
  });
}

bool is_pipelined(const Program& program) {
  const auto rotates = [](const auto& thing) { return thing.instances.has_value(); };
  if (std::ranges::any_of(program.buffers, rotates) || std::ranges::any_of(program.events, rotates))
    return true;
  const auto is_so = [](const Op& op) {
    const auto* collective = std::get_if<Collective>(&op.body);
    return op.lag > 0 || (collective != nullptr && is_point_to_point(collective->kind));
  };
  return std::ranges::any_of(program.plans, [&](const Plan& plan) {
    return std::ranges::any_of(plan.segments, [&](const Segment& segment) {
      return std::ranges::any_of(segment.ops, is_so);
    });
  });
}

Result<void> check_plain(const Job& job) {
  if (job.programs.size() > 1)
    return fail("classes", fmt::format("the plan has {} classes of ranks, which only mfsdp-verify "
                                       "and mfsdp-sim accept so far",
                                       job.programs.size()));
  if (is_pipelined(job.programs[0]))
    return fail("plans",
                "the plan has several microbatches in flight, or sends and receives, which "
                "only mfsdp-verify and mfsdp-sim accept so far");
  return {};
}

Result<Program> only_program(Job job) {
  MFSDP_TRY(check_plain(job));
  return std::move(job.programs[0]);
}

}  // namespace mfsdp
