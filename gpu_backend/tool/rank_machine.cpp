#include "gpu_backend/tool/rank_machine.hpp"

#include <algorithm>
#include <utility>

#include "core/plan/job.hpp"

namespace mfsdp {

std::vector<OpLaunch> kept_launches(const std::vector<std::vector<OpLaunch>>& by_rank) {
  constexpr std::size_t kMost = 150'000;  // about 60 bytes each
  std::vector<OpLaunch> launches;
  for (const std::vector<OpLaunch>& rank : by_rank) {
    if (!launches.empty() && launches.size() + rank.size() > kMost) break;
    launches.insert(launches.end(), rank.begin(), rank.end());
  }
  if (launches.empty()) return launches;
  Nanos first = launches.front().issued;
  for (const OpLaunch& launch : launches)
    first = std::min({first, launch.issued, launch.begin, launch.end});
  for (OpLaunch& launch : launches)
    for (Nanos* at : {&launch.issued, &launch.begin, &launch.end}) *at -= first;
  return launches;
}

std::int64_t fullest_rank(std::span<const Program> programs) {
  const auto device_bytes = [](const Program& program) {
    Bytes sum;
    for (const Pool& pool : program.pools)
      if (pool.space == MemorySpace::device) sum += pool.height;
    return sum;
  };
  const auto fullest = std::ranges::max_element(programs, {}, device_bytes) - programs.begin();
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  return std::ranges::find(classes, static_cast<std::uint32_t>(fullest)) - classes.begin();
}

namespace {

void take_most(Bytes& most, Bytes of_rank) { most = std::max(most, of_rank); }

void add_rank(RanClass& into, const Program& program, const RanRank& rank) {
  for (std::size_t i = 0; i < into.categories.size(); ++i)
    take_most(into.categories.at(i), rank.memory.categories.at(i));
  const Bytes device = on_device(program, rank.memory.pools);
  Bytes all;
  for (const Bytes pool : rank.memory.pools) all += pool;
  take_most(into.allocated, device);
  take_most(into.host, all - device);
  if (rank.runtime) into.runtime = std::max(into.runtime.value_or(Bytes()), *rank.runtime);
}

}  // namespace

RanRun ran_run(std::span<const Program> programs, std::vector<RanRank> ranks) {
  RanRun ran;
  ran.classes.resize(programs.size());
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  std::vector<std::vector<OpLaunch>> launches;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    add_rank(ran.classes[classes[r]], programs[classes[r]], ranks[r]);
    launches.push_back(std::move(ranks[r].launches));
  }
  ran.memory = ranks.at(static_cast<std::size_t>(fullest_rank(programs))).memory;
  std::vector<MeasuredStep> steps = slowest_steps(programs, launches);
  ran.step = slowest_step(steps);
  for (std::size_t c = 0; c < steps.size(); ++c) ran.classes[c].step = std::move(steps[c]);
  ran.launches = kept_launches(launches);
  return ran;
}

Bytes on_device(const Program& program, const std::vector<Bytes>& pools) {
  Bytes sum;
  for (std::size_t i = 0; i < std::min(pools.size(), program.pools.size()); ++i)
    if (program.pools[i].space == MemorySpace::device) sum += pools[i];
  return sum;
}

}  // namespace mfsdp
