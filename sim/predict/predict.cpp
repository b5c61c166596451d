#include "sim/predict/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/job.hpp"
#include "core/plan/lifetimes.hpp"
#include "core/plan/peak_memory.hpp"
#include "core/plan/plan_json.hpp"
#include "core/plan/transport.hpp"
#include "reports/record/axis_times.hpp"
#include "reports/record/kernel_times.hpp"
#include "reports/record/rates.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/predict/live_peak.hpp"
#include "sim/predict/peak_check.hpp"
#include "sim/predict/run_facts.hpp"

namespace mfsdp {

namespace {

/// Callbacks of the engine, answered by the cost model. All arguments must outlive the result.
/// `known`: prices of kernels by their number in `equal`, as far as they were found.
Prices prices_of(const CostModel& costs, PeerPaths& paths, const RoutedRows& routed,
                 const EqualKernels& equal, std::vector<std::optional<KernelPrice>>& known,
                 PeakCheck& peak) {
  static_assert(kOne == kContentionUnit);
  const auto collective = [&](const Collective& op, const Communicator& communicator) {
    const CollectiveCost cost = costs.collective(op, communicator, paths);
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
  const auto kernel = [&](const Op& op) {
    std::optional<KernelPrice>& found = known[equal.of(op)];
    if (found) return *found;
    const auto& launched = std::get<Kernel>(op.body);
    const ExpertRows* rows = rows_of(routed, op);
    const Nanos price = costs.kernel(launched, rows);
    // The FLOPs are those of balanced experts; other row counts may take less time.
    if (rows == nullptr || launched.find_attribute("experts") == nullptr)
      peak.note(launched, price);
    found = KernelPrice(price, class_of(launched.kind), costs.ragged_loss(launched));
    return *found;
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

/// Adds the live peak and its place, from the timelines of one rank.
void complete_memory(PredictedRun& run, const std::vector<OpTime>& timeline, Bytes runtime) {
  for (MemoryPoint& point : run.memory_timeline)
    point.categories[static_cast<std::size_t>(Category::runtime)] = runtime;
  const LivePeak peak = live_peak(run.memory_timeline, timeline);
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

/// Ranks that run a program of a job.
std::int64_t ranks_running(const Program& program, std::size_t programs) {
  return programs == 1 ? program.config.mesh.world_size() : program.classes[0].ranks;
}

/// FLOPs of a step on the mean rank.
double mean_flops(std::span<const Program> programs, std::span<const Plan* const> plans) {
  if (programs.size() == 1) return model_flops(*plans[0]);
  double sum = 0;
  for (std::size_t c = 0; c < programs.size(); ++c)
    sum +=
        model_flops(*plans[c]) * static_cast<double>(ranks_running(programs[c], programs.size()));
  return sum / static_cast<double>(programs[0].config.mesh.world_size());
}

/// Simulates each class at the clock of a step that idles as long as this one does without
/// variation.
class ClockedSimulation {
 public:
  ClockedSimulation(std::span<const Program> programs, std::span<const Plan* const> plans,
                    const CostModel& costs, const RoutedRows& routed)
      : programs_(programs),
        plans_(plans),
        gpu_(costs.cluster().gpu),
        routed_(routed),
        equal_(plans, !routed.empty()) {
    for (std::size_t c = 0; c < programs.size(); ++c) {
      mixed_.push_back(costs.mixed(programs[c], *plans[c], routed, equal_));
      paths_.emplace_back(programs[c], costs.cluster());
    }
    models_ = mixed_;
  }

  Result<Simulation> run(std::optional<PeakCheck>& peak, const std::vector<Issuing>& hosts,
                         const RankVariation& variation, std::size_t memory_class) {
    constexpr int kRounds = 4;
    std::size_t likely = memory_class;
    for (int round = 1;; ++round) {
      peak.emplace(gpu_);
      std::vector<SimulatedPlan> classes;
      std::vector<std::vector<std::optional<KernelPrice>>> known(programs_.size());
      for (std::size_t c = 0; c < programs_.size(); ++c) {
        known[c].resize(equal_.count());
        Prices prices = prices_of(models_[c], paths_[c], routed_, equal_, known[c], *peak);
        if (!hosts.empty()) {
          prices.host = hosts[c].time;
          prices.leaves_sms = hosts[c].leaves_sms;
        }
        prices.launches_in_order = hosts.empty();
        classes.push_back(
            {.program = &programs_[c], .plan = plans_[c], .prices = std::move(prices)});
      }
      bool is_last = false;
      const auto records = [&](const Simulation& simulation) {
        is_last = round == kRounds || !changes_clock(simulation);
        return is_last && !variation.is_any();
      };
      MFSDP_LET(
          simulation,
          simulate(classes, {},
                   {.memory_class = memory_class, .likely_class = likely, .records = records}));
      likely = simulation.reported_class;
      if (!is_last) {
        models_ = std::move(rested_);
        continue;
      }
      if (!variation.is_any()) return std::move(simulation);
      return simulate(classes, variation, {.memory_class = memory_class});
    }
  }

  /// Times of the kernels of a class's step, without contention.
  [[nodiscard]] TimeByKernelGroup kernels_of(std::size_t position) const {
    TimeByKernelGroup times{};
    const Plan& plan = *plans_[position];
    std::vector<std::optional<Nanos>> known(equal_.count());
    for (std::size_t s = 0; s < plan.segments.size(); ++s)
      for_each_op_of_run(plan, s, [&](const Op& op) {
        const auto* kernel = std::get_if<Kernel>(&op.body);
        if (kernel == nullptr) return;
        std::optional<Nanos>& price = known[equal_.of(op)];
        if (!price) price = models_[position].kernel(*kernel, rows_of(routed_, op));
        times[static_cast<std::size_t>(group_of(kernel->kind))] +=
            Nanos(checked_mul(price->value, plan.segments[s].repeat));
      });
    return times;
  }

 private:
  /// Whether some class has another clock in that step than it was simulated with.
  bool changes_clock(const Simulation& simulation) {
    constexpr double kSame = 0.002;
    rested_.clear();
    bool is_another = false;
    for (std::size_t c = 0; c < programs_.size(); ++c) {
      rested_.push_back(mixed_[c].rested(simulation.classes[c].time.idle));
      is_another |= std::abs(rested_[c].clock() - models_[c].clock()) >= kSame;
    }
    return is_another;
  }

  std::span<const Program> programs_;
  std::span<const Plan* const> plans_;
  const Gpu& gpu_;
  const RoutedRows& routed_;
  EqualKernels equal_;
  std::vector<CostModel> mixed_;   // by class, as all of these
  std::vector<CostModel> models_;  // with which it is simulated
  std::vector<CostModel> rested_;  // at the clocks of the last simulation
  std::vector<PeerPaths> paths_;
};

ClassReport class_report(const Program& program, const MemorySummary& memory,
                         const ClassTimes& times) {
  const TimeSummary& time = times.time;
  Bytes host;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::host) host += pool.height;
  return {.role = program.classes[0].role,
          .ranks = program.classes[0].ranks,
          .allocated = memory.allocated,
          .peak = memory.peak,
          .host = host,
          .step = time.step,
          .compute = time.compute,
          .exposed_communication = time.exposed_communication,
          .idle = time.idle,
          .sends = times.traffic.sends};
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

std::size_t fullest_class(std::span<const Program> programs, const Gpu& gpu) {
  const auto fullest = std::ranges::max_element(
      programs, {}, [&](const Program& program) { return footprint(program, gpu).allocated; });
  return static_cast<std::size_t>(fullest - programs.begin());
}

Result<Prediction> predict(std::span<const Program> programs, const CostModel& costs,
                           const RankVariation& variation, const std::vector<Issuing>& hosts,
                           const RoutedRows& routed, std::string hash, PlanRole role) {
  std::vector<const Plan*> plans;
  for (const Program& program : programs) {
    plans.push_back(program.find_plan(role));
    if (plans.back() == nullptr)
      return fail("plans", fmt::format("there is no plan of role {}", to_string(role)));
  }
  const Cluster& cluster = costs.cluster();
  try {
    const std::size_t fullest = fullest_class(programs, cluster.gpu);
    const Program& program = programs[fullest];
    std::vector<std::vector<PoolLifetimes>> pools;  // by class
    for (std::size_t c = 0; c < programs.size(); ++c) {
      MFSDP_LET(of_class, buffer_lifetimes(programs[c], *plans[c]));
      pools.push_back(std::move(of_class));
    }
    std::optional<PeakCheck> peak;  // of the prices that were used
    ClockedSimulation clocked(programs, plans, costs, routed);
    MFSDP_LET(simulation, clocked.run(peak, hosts, variation, fullest));
    PredictedRun run;
    if (hash.empty())
      hash = programs.size() == 1 ? plan_hash(program)
                                  : plan_hash(Job{{programs.begin(), programs.end()}});
    run.plan_hash = std::move(hash);
    run.model_name = program.meta.model_name;
    run.parameters = parameter_count(program.config.model);
    run.config = program.config;
    run.cluster = cluster_summary(cluster);
    run.facts = cluster_facts(cluster);
    for (Fact& fact : variation_facts(variation)) run.facts.push_back(std::move(fact));
    if (program.config.has_fp8())
      for (Fact& fact : kernel_facts(clocked.kernels_of(simulation.reported_class)))
        run.facts.push_back(std::move(fact));
    for (Fact& fact :
         axis_facts(programs[simulation.reported_class], simulation.exposed_by_communicator))
      run.facts.push_back(std::move(fact));
    run.calibration = costs.calibration();
    run.cost_model_version = std::string(costs.version());
    run.plan = plan_summary(program, *plans[fullest], pools[fullest]);
    run.plan.model_flops = mean_flops(programs, plans);
    run.time = simulation.time;
    run.traffic = simulation.traffic;
    run.exposed_units = simulation.exposed_units;
    run.timeline = std::move(simulation.timeline);
    run.omitted = std::move(simulation.omitted);
    run.memory_timeline = std::move(simulation.memory_timeline);
    const Bytes runtime = runtime_bytes(cluster.gpu, std::ssize(program.communicators));
    run.memory = memory_of(program, peak_memory(program, pools[fullest]), cluster.gpu, runtime);
    complete_memory(run, simulation.memory_ops.empty() ? run.timeline : simulation.memory_ops,
                    runtime);
    run.peak_place = place_of_op(program, *plans[fullest], run.peak_op);
    if (programs.size() > 1)
      for (std::size_t c = 0; c < programs.size(); ++c) {
        ClassReport& report = run.classes.emplace_back(class_report(
            programs[c],
            memory_of(programs[c], peak_memory(programs[c], pools[c]), cluster.gpu, runtime),
            simulation.classes[c]));
        report.fullest = c == fullest;
        report.busiest = c == simulation.reported_class;
      }
    complete_rates(run, cluster.gpu);
    MFSDP_TRY(peak->judge(run.time));
    return Prediction{.run = std::move(run), .simulation = std::move(simulation)};
  } catch (const OverflowError& error) {
    return fail("plan", std::string("its sizes or times are too large: ") + error.what());
  }
}

}  // namespace mfsdp
