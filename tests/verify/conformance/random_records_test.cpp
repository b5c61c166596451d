// Planner plans of every kind: what the simulator runs conforms, and of records with random times
// just those do in which no op comes before one that the plan orders before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/plan/happens_before.hpp"
#include "core/schedule/build.hpp"
#include "sim/simulator/op_names.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/verify/conformance/recorded_run.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kRanks = 2;

/// Prices that differ from op to op.
Prices uneven_prices() {
  return {.kernel = [](const Op& op) { return Nanos(std::get<Kernel>(op.body).flops % 977 + 3); },
          .collective =
              [](const Collective& collective, const Communicator&) {
                CollectivePrice price;
                price.duration = Nanos(collective.count % 1999 + 50);
                price.latency = Nanos(10);
                return price;
              },
          .copy = [](const Copy&) { return CopyPrice{.duration = Nanos(20)}; }};
}

RC_GTEST_PROP(RandomRecords, WhatTheSimulatorRunsConforms, ()) {
  const PlanConfig config = *test::any_config();
  const Program program = build_program(config, {}).value();
  const auto launches =
      test::simulated(program, std::min(kRanks, config.mesh.world_size()), uneven_prices());
  RC_ASSERT(!launches.empty());
  const auto rules = test::broken_rules(program, launches, {.work_alone = true});
  RC_ASSERT(rules.empty());
}

RC_GTEST_PROP(RandomRecords, WhatRunsOpByOpConforms, ()) {
  const PlanConfig config = *test::any_config();
  const Program program = build_program(config, {}).value();
  const auto ranks = std::min(kRanks, config.mesh.world_size());
  const auto launches = test::one_by_one(program, ranks, 1, 2, 40);
  RC_ASSERT(test::broken_rules(program, launches).empty());
}

/// Whether some op of rank 0 begins before one is over that HappensBefore orders before it.
bool is_disordered(const HappensBefore& order, const std::vector<OpLaunch>& by_instance) {
  const auto& instances = order.instances();
  for (std::size_t a = 0; a < instances.size(); ++a)
    for (std::size_t b = a + 1; b < instances.size(); ++b)
      if (takes_time(*instances[a].op) && takes_time(*instances[b].op) && order.before(a, b) &&
          by_instance[b].begin < by_instance[a].end)
        return true;
  return false;
}

RC_GTEST_PROP(RandomRecords, EarlyOpsAreFoundAsALookAtEveryPairFindsThem, ()) {
  PlanConfig config = *test::any_config();
  config.model.layers = 1;
  config.microbatches = *rc::gen::inRange<std::int64_t>(1, 4);
  config.frozen.clear();
  const auto program = build_program(config, {});
  RC_PRE(program.has_value());
  const HappensBefore order(*program, program->plans[0], 2, 1000);
  std::vector<OpLaunch> launches = test::one_by_one(*program, 1, 1, 2);
  RC_ASSERT(launches.size() == order.instances().size());
  // A few ops come much earlier or end much later, in a list that is issued at once.
  for (OpLaunch& launch : launches) {
    launch.issued = Nanos(0);
    launch.begin += Nanos(1'000'000'000);
    launch.end += Nanos(1'000'000'000);
  }
  const auto moves = *rc::gen::inRange(0, 4);
  for (int i = 0; i < moves; ++i) {
    OpLaunch& launch = launches[*rc::gen::inRange<std::size_t>(0, launches.size())];
    launch.begin -= Nanos(*rc::gen::inRange<std::int64_t>(0, 3000));
    launch.end += Nanos(*rc::gen::inRange<std::int64_t>(0, 3000));
  }
  const bool disordered = is_disordered(order, launches);
  RC_TAG(disordered);
  std::vector<OpLaunch> work;
  for (std::size_t i = 0; i < launches.size(); ++i)
    if (takes_time(*order.instances()[i].op)) work.push_back(launches[i]);
  const auto rules = test::broken_rules(*program, work, {.work_alone = true});
  RC_ASSERT(rules.empty() == !disordered);
}

}  // namespace
}  // namespace mfsdp
