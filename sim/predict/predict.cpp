#include "sim/predict/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "core/model/model.hpp"
#include "core/plan/lifetimes.hpp"
#include "core/plan/peak_memory.hpp"
#include "core/plan/plan_json.hpp"
#include "core/plan/transport.hpp"
#include "reports/record/rates.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/predict/live_peak.hpp"
#include "sim/predict/peak_check.hpp"
#include "sim/predict/run_facts.hpp"

namespace mfsdp {

namespace {

/// Callbacks of the engine, answered by the cost model. `costs`, `routed` and `peak` must outlive
/// the result.
Prices prices_of(const CostModel& costs, const Mesh& mesh, const RoutedRows& routed,
                 PeakCheck& peak) {
  static_assert(kOne == kContentionUnit);
  const auto collective = [&costs, mesh](const Collective& op, const Communicator& communicator) {
    const CollectiveCost cost = costs.collective(op, communicator, mesh);
    return CollectivePrice{.duration = cost.duration,
                           .latency = cost.latency,
                           .occupancy = cost.contention.occupancy,
                           .weight = cost.contention.weight,
                           .traffic = cost.contention.traffic,
                           .drag = cost.contention.drag,
                           .link = static_cast<int>(cost.link),
                           .link_share = cost.link_share,
                           .by_kernels = traits_of(cost.by).holds_sms};
  };
  const auto kernel = [&costs, &routed, &peak](const Op& op) {
    const auto& launched = std::get<Kernel>(op.body);
    const ExpertRows* rows = rows_of(routed, op);
    const Nanos price = costs.kernel(launched, rows);
    // The FLOPs are those of balanced experts; other row counts may take less time.
    if (rows == nullptr || launched.find_attribute("experts") == nullptr)
      peak.note(launched, price);
    return KernelPrice(price, class_of(launched.kind), costs.ragged_loss(launched));
  };
  const auto copy = [&costs](const Copy& op) {
    CopyPrice price{.duration = costs.copy(op.kind, Bytes(op.input.touched_bytes())),
                    .latency = costs.copy(op.kind, Bytes(0))};
    if (op.kind == CopyKind::h2d) price.link = static_cast<int>(LinkClass::host_to_device);
    if (op.kind == CopyKind::d2h) price.link = static_cast<int>(LinkClass::device_to_host);
    return price;
  };
  return {.kernel = kernel, .collective = collective, .copy = copy};
}

void count_ops(const Segment& segment, PlanSummary& summary) {
  for (const Op& op : segment.ops) {
    ++summary.ops;
    const OpKind kind = op.kind();
    if (kind == OpKind::wait || kind == OpKind::host_wait) ++summary.waits;
    if (kind == OpKind::collective)
      summary.collectives = checked_add(summary.collectives, segment.repeat);
  }
}

/// Counts of a plan's ops and bytes, without pools of host memory.
PlanSummary plan_summary(const Program& program, const Plan& plan,
                         const std::vector<PoolLifetimes>& pools) {
  PlanSummary summary;
  summary.units = std::ssize(program.units);
  summary.groups = std::ssize(program.groups);
  summary.events = std::ssize(program.events);
  summary.buffers = std::ssize(program.buffers);
  summary.segments = std::ssize(plan.segments);
  summary.allocator = program.config.allocator;
  summary.model_flops = model_flops(plan);
  for (const Segment& segment : plan.segments) count_ops(segment, summary);
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device)
      summary.pools.push_back(
          {.name = pool.name, .height = pool.height, .lower_bound = pool.lower_bound});
  for (const Group& group : program.groups)
    summary.padding += bytes_of(checked_sub(group.elements, group.used_elements()), group.dtype);
  summary.max_live_full_weights = max_live_buffers(program, pools, Category::unsharded_weight);
  summary.max_live_full_gradients = max_live_buffers(program, pools, Category::unsharded_grad);
  return summary;
}

/// Memory of the plan and of the runtime.
MemorySummary memory_of(const Program& program, const CategoryBytes& peak, const Gpu& gpu,
                        Bytes runtime) {
  MemorySummary memory;
  memory.capacity = gpu.capacity;
  memory.allocated = footprint(program, gpu).allocated;
  memory.categories = peak;
  memory.categories[static_cast<std::size_t>(Category::runtime)] = runtime;
  memory.peak = sum_of(memory.categories);
  memory.runtime_source = gpu.runtime_source;
  memory.fits = memory.allocated <= memory.capacity;
  memory.headroom = memory.capacity - memory.allocated;
  return memory;
}

void complete_rates(RunFigures& run, const Gpu& gpu) {
  const Rates rates = rates_of(run, run.time.step);
  run.time.tokens_per_second_per_gpu = rates.tokens_per_second;
  run.time.tflops_per_gpu = rates.tflops;
  run.time.mfu = rates.tflops / gpu.bf16;
}

/// Adds the live peak and its place, from the timelines.
void complete_memory(PredictedRun& run, Bytes runtime) {
  for (MemoryPoint& point : run.memory_timeline)
    point.categories[static_cast<std::size_t>(Category::runtime)] = runtime;
  const LivePeak peak = live_peak(run);
  run.live_peak = peak.live;
  run.peak_op = peak.op.empty() ? "start of the step" : peak.op;
}

ClusterSummary cluster_summary(const Cluster& cluster) {
  return {.gpu = cluster.gpu.name,
          .gpus = cluster.gpus,
          .nodes = cluster.nodes,
          .gpus_per_node = cluster.gpus_per_node,
          .network = cluster.network};
}

/// Simulates at the clock of a step that idles as long as this one does without variation.
Result<Simulation> simulate_at_clock(const Program& program, const Plan& plan,
                                     const CostModel& costs, std::optional<PeakCheck>& peak,
                                     const std::function<Nanos(const Op&)>& host,
                                     const RoutedRows& routed, const RankVariation& variation) {
  constexpr int kRounds = 4;
  constexpr double kSame = 0.002;
  const CostModel mixed = costs.mixed(program, plan, routed);
  CostModel model = mixed;
  for (int round = 1;; ++round) {
    peak.emplace(costs.cluster().gpu);
    Prices prices = prices_of(model, program.config.mesh, routed, *peak);
    prices.host = host;
    prices.launches_in_order = !host;
    MFSDP_LET(simulation, simulate(program, plan, prices, {}));
    CostModel rested = mixed.rested(simulation.time.idle);
    if (round == kRounds || std::abs(rested.clock() - model.clock()) < kSame)
      return variation.is_any() ? simulate(program, plan, prices, variation) : simulation;
    model = std::move(rested);
  }
}

}  // namespace

Footprint footprint(const Program& program, const Gpu& gpu) {
  const Bytes runtime = runtime_bytes(gpu, std::ssize(program.communicators));
  Footprint footprint{.allocated = runtime, .least = runtime};
  for (const Pool& pool : program.pools) {
    if (pool.space != MemorySpace::device) continue;
    footprint.allocated += pool.height;
    footprint.least += pool.lower_bound;
  }
  return footprint;
}

Result<Prediction> predict(const Program& program, const CostModel& costs,
                           const RankVariation& variation,
                           const std::function<Nanos(const Op&)>& host, const RoutedRows& routed) {
  const Plan* plan = program.find_plan(kTrainPlan);
  if (!plan) return fail("plans", fmt::format("there is no plan named '{}'", kTrainPlan));
  const Cluster& cluster = costs.cluster();
  try {
    MFSDP_LET(pools, buffer_lifetimes(program, *plan));
    std::optional<PeakCheck> peak;  // of the prices that were used
    MFSDP_LET(simulation, simulate_at_clock(program, *plan, costs, peak, host, routed, variation));
    PredictedRun run;
    run.plan_hash = plan_hash(program);
    run.model_name = program.meta.model_name;
    run.parameters = parameter_count(program.config.model);
    run.config = program.config;
    run.cluster = cluster_summary(cluster);
    run.facts = cluster_facts(cluster);
    for (Fact& fact : variation_facts(variation)) run.facts.push_back(std::move(fact));
    run.calibration = costs.calibration();
    run.cost_model_version = std::string(costs.version());
    run.plan = plan_summary(program, *plan, pools);
    run.time = simulation.time;
    run.traffic = simulation.traffic;
    run.exposed_units = simulation.exposed_units;
    run.timeline = std::move(simulation.timeline);
    run.omitted = std::move(simulation.omitted);
    run.memory_timeline = std::move(simulation.memory_timeline);
    const Bytes runtime = runtime_bytes(cluster.gpu, std::ssize(program.communicators));
    run.memory = memory_of(program, peak_memory(program, pools), cluster.gpu, runtime);
    complete_memory(run, runtime);
    run.peak_place = place_of_op(program, *plan, run.peak_op);
    complete_rates(run, cluster.gpu);
    MFSDP_TRY(peak->judge(run.time));
    return Prediction{.run = std::move(run), .simulation = std::move(simulation)};
  } catch (const OverflowError& error) {
    return fail("plan", std::string("its sizes or times are too large: ") + error.what());
  }
}

}  // namespace mfsdp
