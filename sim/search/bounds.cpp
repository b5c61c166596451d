#include "sim/search/bounds.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <variant>

#include "core/plan/pipeline.hpp"
#include "core/schedule/least_work.hpp"
#include "sim/cost/kernel_class.hpp"
#include "sim/cost/peer_paths.hpp"

namespace mfsdp {
namespace {

/// The simulation ends when the clock changes by less than this, relative to 1.
constexpr double kSettled = 0.002;

constexpr double kPerSecond = 1e9;

constexpr std::array kClasses{KernelClass::product, KernelClass::attention_forward,
                              KernelClass::attention_backward, KernelClass::memory};

bool has_bound(const PredictionRequest& request) {
  return traits_of(request.engine).runs_plans && !request.job &&
         request.variation.jitter.num == 0 && request.routed == nullptr;
}

}  // namespace

StepFloors::Work& StepFloors::Work::operator+=(const Work& other) {
  for (const KernelClass one : kClasses) kernels.alone[one] += other.kernels.alone[one];
  kernels.fp8 += other.kernels.fp8;
  collectives += other.collectives;
  return *this;
}

StepFloors::Work StepFloors::Work::times(double count) const {
  Work made = *this;
  for (const KernelClass one : kClasses) made.kernels.alone[one] *= count;
  made.kernels.fp8 *= count;
  made.collectives *= count;
  return made;
}

StepFloors::Units StepFloors::priced(const PredictionRequest& request, const PlanConfig& key) {
  const LeastWork least = least_work(key);
  PeerPaths paths(least.program, request.costs->cluster());
  std::vector<Work> prices;
  for (const OpBody& body : least.ops) {
    Work& price = prices.emplace_back();
    if (const auto* kernel = std::get_if<Kernel>(&body)) {
      const auto ns = static_cast<double>(request.costs->kernel(*kernel).value);
      price.kernels.alone[class_of(kernel->kind)] = ns;
      if (kernel->kind == KernelKind::gemm_fp8) price.kernels.fp8 = ns;
      continue;
    }
    const auto& collective = std::get<Collective>(body);
    const auto over =
        std::ranges::find(least.program.communicators, collective.communicator, &Communicator::id);
    price.collectives =
        static_cast<double>(request.costs->collective(collective, *over, paths).duration.value);
  }
  std::vector<UnitTimes> units;
  for (const UnitWork& work : least.units) {
    UnitTimes& times = units.emplace_back();
    for (const std::size_t op : work.forward) times.forward += prices[op];
    for (const std::size_t op : work.backward) times.backward += prices[op];
  }
  return std::make_shared<const std::vector<UnitTimes>>(std::move(units));
}

double StepFloors::gathered(const PredictionRequest& request, const PlanConfig& key) {
  const LeastGathers least = least_gathers(key);
  const Cluster& cluster = request.costs->cluster();
  PeerPaths paths(least.program, cluster);
  double ns = 0;
  for (const auto& [gather, times] : least.gathers) {
    const auto over =
        std::ranges::find(least.program.communicators, gather.communicator, &Communicator::id);
    if (over->size <= cluster.gpus_per_node) continue;
    const CollectiveCost cost = request.costs->collective(gather, *over, paths);
    ns += static_cast<double>((cost.duration - cost.latency).value) * static_cast<double>(times);
  }
  return ns;
}

template <class Value>
Value StepFloors::known(Table<Value>& table, const PredictionRequest& request,
                        const PlanConfig& key,
                        Value (*work_out)(const PredictionRequest&, const PlanConfig&)) {
  const std::size_t hash = rough_hash(key);
  const auto find = [&]() -> const Value* {
    const auto [first, last] = table.equal_range(hash);
    for (auto at = first; at != last; ++at)
      if (at->second.costs == request.costs && at->second.config == key) return &at->second.value;
    return nullptr;
  };
  {
    const std::lock_guard lock(mutex_);
    if (const Value* found = find()) return *found;
  }
  Value made = work_out(request, key);
  const std::lock_guard lock(mutex_);
  if (find() == nullptr)
    table.emplace(hash, Cached<Value>{.config = key, .costs = request.costs, .value = made});
  return made;
}

double StepFloors::floor_of(const PlanConfig& config, const std::vector<UnitTimes>& units,
                            const Gpu& gpu) {
  const auto stages = static_cast<std::size_t>(config.mesh.size(Axis::pp));
  const auto microbatches = static_cast<double>(config.microbatches);
  const bool weights_wait = config.schedule == PipelineSchedule::zb_h1;
  std::vector<UnitTimes> chunks;
  const std::vector<Interval> blocks = blocks_of_chunks(config);
  for (std::size_t c = 0; c < blocks.size(); ++c) {
    // The embedding is with the first blocks, the head with the last ones.
    const auto begin = static_cast<std::size_t>(c == 0 ? 0 : blocks[c].begin + 1);
    const auto end = static_cast<std::size_t>(blocks[c].end + (c + 1 == blocks.size() ? 2 : 1));
    UnitTimes& chunk = chunks.emplace_back();
    for (std::size_t unit = begin; unit < end; ++unit) {
      chunk.forward += units[unit].forward;
      chunk.backward += units[unit].backward;
    }
  }
  const double limit = gpu.power ? gpu.power->own / gpu.power->tables : 1;
  double most = 0;
  double fill = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    Work work;
    for (std::size_t c = stage; c < chunks.size(); c += stages) {
      work += chunks[c].forward;
      work += chunks[c].backward;
    }
    work = work.times(microbatches);
    most = std::max(
        most, least_step(work.kernels, work.collectives + fill, gpu.power.has_value(), limit));
    fill += chunks[stage].forward.shortest();
    if (!weights_wait) fill += chunks[stage].backward.shortest();
  }
  return most * (1 - kSettled);
}

double StepFloors::of(const PredictionRequest& request) {
  if (!has_bound(request)) return 0;
  try {
    const PlanConfig& config = request.config;
    const Units units = known(units_, request, work_key(config), &StepFloors::priced);
    const double gathers = known(gathers_, request, gathers_key(config), &StepFloors::gathered) *
                           static_cast<double>(config.microbatches);
    return std::max(gathers, floor_of(config, *units, request.costs->cluster().gpu));
  } catch (const OverflowError&) {
    return 0;  // with_program() reports the overflow
  }
}

RunFigures StepFloors::best_case(const PredictionRequest& request) {
  const Cluster& cluster = request.costs->cluster();
  RunFigures figures;
  figures.config = request.config;
  figures.cluster.gpu = cluster.gpu.name;
  figures.cluster.gpus = cluster.gpus;
  figures.memory.allocated = least_allocated(request);
  const double seconds = of(request) / kPerSecond;
  const auto tokens = static_cast<double>(request.config.global_tokens());
  figures.time.tokens_per_second_per_gpu =
      seconds > 0 ? tokens / seconds / static_cast<double>(cluster.gpus)
                  : std::numeric_limits<double>::infinity();
  return figures;
}

}  // namespace mfsdp
