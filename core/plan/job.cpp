#include "core/plan/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/plan/instances.hpp"

namespace mfsdp {

std::vector<std::uint32_t> class_of_ranks(std::span<const Program> programs) {
  const Mesh& mesh = programs.front().config.mesh;
  std::vector<std::uint32_t> classes(static_cast<std::size_t>(mesh.world_size()), 0);
  if (programs.size() == 1) return classes;
  for (std::size_t rank = 0; rank < classes.size(); ++rank)
    for (std::size_t c = 0; c < programs.size(); ++c)
      if (runs_on(programs[c], static_cast<std::int64_t>(rank)))
        classes[rank] = static_cast<std::uint32_t>(c);
  return classes;
}

bool runs_on(const Program& program, std::int64_t rank) {
  return std::ranges::all_of(program.classes[0].at, [&](const MeshPlace& place) {
    return program.config.mesh.index(rank, place.axis) == place.index;
  });
}

const Program& program_of(std::span<const Program> programs, std::int64_t rank) {
  return programs[class_of_ranks(programs)[static_cast<std::size_t>(rank)]];
}

std::int64_t reporting_rank(std::span<const Program> programs) {
  const auto reports = [&](std::uint32_t c) {
    return std::ranges::any_of(programs[c].buffers, [](const Buffer& buffer) {
      return buffer.holds && buffer.holds->port == Port::report;
    });
  };
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  const auto first = std::ranges::find_if(classes, reports);
  return first == classes.end() ? 0 : first - classes.begin();
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
    return !plan.passes.empty() || std::ranges::any_of(ops_of(plan), is_so);
  });
}

Result<void> check_plain(const Job& job) {
  if (job.programs.size() > 1)
    return fail("classes",
                fmt::format("the plan has {} classes of ranks; a plan of one is needed here",
                            job.programs.size()));
  if (is_pipelined(job.programs[0]))
    return fail(
        "plans",
        "the plan has several microbatches in flight, or sends and receives; a plan without "
        "these is needed here");
  return {};
}

Result<Program> only_program(Job job) {
  MFSDP_TRY(check_plain(job));
  return std::move(job.programs[0]);
}

}  // namespace mfsdp
