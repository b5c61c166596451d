// Records of the CPU's machine, with delays between all threads and without a wait.
#include "tests/support/machine_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <iostream>

#include "tests/support/samples.hpp"
#include "tests/verify/conformance/recorded_run.hpp"

namespace mfsdp {
namespace {

/// Every op of the last two steps, as mfsdp-exec records them. An evaluation before the last step
/// but one is no part of it.
std::vector<OpLaunch> recorded(const Program& program, MachineSettings settings) {
  settings.timed_steps = 2;
  Machine machine(program, std::move(settings));
  std::vector<std::vector<OpLaunch>> by_rank(
      static_cast<std::size_t>(program.config.mesh.world_size()));
  const auto ran = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    test::HostLoop loop(rank);
    MFSDP_LET(interpreter, Interpreter::create(program, backend, rank, std::ref(loop)));
    test::fill_state(program, *interpreter, rank);
    for (const char* plan : {"train", "train", "eval", "eval", "eval", "train", "train"})
      MFSDP_TRY(interpreter->run(plan));
    MFSDP_TRY(interpreter->finish());
    for (const OpTiming& timing : backend.take_timings()) {
      OpLaunch& launch = by_rank[static_cast<std::size_t>(rank)].emplace_back();
      launch.op = timing.op->op->id;
      launch.rank = rank;
      launch.step = timing.step;
      if (timing.stream) launch.stream = program.streams[*timing.stream].id;
      launch.drains = timing.drains;
      launch.issued = timing.issued;
      launch.begin = timing.begin;
      launch.end = timing.end;
    }
    return {};
  });
  EXPECT_TRUE(ran) << ran.error().message();
  std::vector<OpLaunch> launches;
  for (const auto& rank : by_rank) launches.insert(launches.end(), rank.begin(), rank.end());
  return launches;
}

std::string first_finding(const Program& program, const std::vector<OpLaunch>& launches) {
  const auto checked = check_conformance(program, program.plans[0], launches);
  if (!checked) return checked.error().message();
  return checked->findings.empty() ? "" : checked->findings.front().message;
}

TEST(MachineRun, ConformsUnderEveryStrategy) {
  for (const PlanConfig& config : test::machine_configs()) {
    const Program program = test::built_small(config);
    MachineSettings settings = test::hashing();
    EXPECT_EQ(first_finding(program, recorded(program, settings)), "") << test::name_of(config);
  }
}

TEST(MachineRun, ConformsWhateverIsDelayed) {
  PlanConfig config = test::small_config(1, 2);
  config.mesh = data_parallel_mesh(2, 2);
  config.microbatches = 3;
  const Program program = test::built_small(config);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    MachineSettings settings = test::hashing();
    settings.chaos = seed;
    EXPECT_EQ(first_finding(program, recorded(program, settings)), "") << "seed " << seed;
  }
}

/// Whether the record lacks that wait, and whether some op came too early for it in one of a few
/// runs with delays.
struct Shown {
  bool missing = true;
  bool early = false;
};

Shown without(const Program& program, OpId wait) {
  Shown shown;
  for (std::uint64_t seed = 0; seed < 12 && !shown.early; ++seed) {
    MachineSettings settings = test::hashing();
    settings.chaos = seed;
    settings.faults.dropped_wait = wait;
    const auto rules = test::broken_rules(program, recorded(program, settings));
    shown.missing = shown.missing && rules.contains("MF801");
    shown.early = shown.early || rules.contains("MF806");
  }
  return shown;
}

/// Each wait is left out in turn.
TEST(MachineRun, WithoutAWaitDoesNotConform) {
  if (test::kOneCase) GTEST_SKIP() << test::kTheorem;  // it races on purpose, too
  PlanConfig config = test::small_config(2, 2);
  config.microbatches = 2;
  const Program program = test::built_small(config);
  std::vector<const Op*> waits;
  for (const Segment& segment : program.plans[0].segments)
    for (const Op& op : segment.ops)
      if (op.kind() == OpKind::wait) waits.push_back(&op);
  ASSERT_GT(waits.size(), 20U);
  std::vector<std::future<Shown>> runs;
  runs.reserve(waits.size());
  for (const Op* wait : waits)
    runs.push_back(std::async(std::launch::async, without, std::cref(program), wait->id));
  std::size_t early = 0;
  for (std::size_t i = 0; i < waits.size(); ++i) {
    const Shown shown = runs[i].get();
    EXPECT_TRUE(shown.missing) << waits[i]->name;
    early += shown.early ? 1 : 0;
  }
  // Some waits order what other waits order too, some just one moment.
  EXPECT_GE(2 * early, waits.size());
  std::cout << waits.size() << " waits left out, the times of " << early << " runs show it\n";
}

}  // namespace
}  // namespace mfsdp
