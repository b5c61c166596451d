#include "gpu_backend/tool/cpu_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "core/cli/format.hpp"
#include "gpu_backend/tool/process_memory.hpp"
#include "sim/predict/predict.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostRanks = 512;
constexpr std::int64_t kLeastPatience = 6;          ///< seconds
constexpr std::int64_t kSlowFlops = 1'000'000'000;  ///< a second, of a core that others use too
constexpr std::int64_t kSlowBytes = 500'000'000;    ///< a second

InjectedFault::Kind kind_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::fail: return InjectedFault::Kind::fail;
    case FaultKind::stop: return InjectedFault::Kind::stop;
    case FaultKind::miscount: break;
  }
  return InjectedFault::Kind::miscount;
}

Result<InjectedFault> fault_of(const FaultFlag& flag, const Program& program) {
  const std::int64_t ranks = program.config.mesh.world_size();
  if (flag.rank >= ranks)
    return fail("--fault",
                fmt::format("there is no rank {}: expected 0 to {}", flag.rank, ranks - 1));
  const Plan* plan = program.find_plan(predicted_plan);
  for (const Segment& segment : plan->segments)
    for (const Op& op : segment.ops)
      if (op.name == flag.op && (op.kind() == OpKind::kernel || op.kind() == OpKind::collective)) {
        if (flag.kind == FaultKind::miscount && op.kind() != OpKind::collective)
          return fail("--fault", in_quotes(flag.op) + " is no collective: it counts nothing");
        return InjectedFault{
            .kind = kind_of(flag.kind), .rank = flag.rank, .op = op.id, .step = flag.step - 1};
      }
  return fail(
      "--fault",
      in_quotes(flag.op) + " is no kernel or collective of the train plan (--plan-out lists them)");
}

/// Every rank is a host and a thread for each stream, and all pools lie in this machine's memory.
Result<void> check_room(const Program& program) {
  const PlanConfig& config = program.config;
  const std::int64_t ranks = config.mesh.world_size();
  if (ranks > kMostRanks)
    return fail("--world-size",
                fmt::format("{} ranks are too many for one machine's CPU: expected at most {}",
                            ranks, kMostRanks));
  Bytes pools;
  for (const Pool& pool : program.pools) pools += pool.height;
  const Bytes needed(checked_mul(pools.value, ranks));
  if (needed <= physical_memory()) return {};
  return fail("memory",
              fmt::format("{} ranks need {} in pools, this machine has {}", ranks,
                          format_bytes(needed), format_bytes(physical_memory())),
              Fault::environment);
}

Result<MachineSettings> machine_settings(const Program& program, const ExecOptions& options,
                                         const TrainSettings& training) {
  MachineSettings settings;
  const KernelSettings kernels{
      .program = &program, .optimizer = training.optimizer, .ignore_index = kIgnoreIndex};
  settings.kernel = [kernels](const KernelCall& call) { return run_kernel(call, kernels); };
  settings.deadline =
      options.deadline ? std::chrono::seconds(*options.deadline) : patience_for(program);
  if (options.chaos) settings.chaos = static_cast<std::uint64_t>(*options.chaos);
  settings.poison = options.poison;
  settings.timed_steps = 2;
  if (options.fault) {
    MFSDP_LET(fault, fault_of(*options.fault, program));
    settings.faults.fault = fault;
  }
  return settings;
}

/// The launches of whole ranks, few enough to be stored with every run: some 60 bytes each.
std::vector<OpLaunch> kept(const std::vector<std::vector<OpLaunch>>& by_rank) {
  constexpr std::size_t kMost = 100'000;
  std::vector<OpLaunch> launches;
  for (const std::vector<OpLaunch>& rank : by_rank) {
    if (!launches.empty() && launches.size() + rank.size() > kMost) break;
    launches.insert(launches.end(), rank.begin(), rank.end());
  }
  if (launches.empty()) return launches;
  const Nanos first = std::ranges::min_element(launches, {}, &OpLaunch::issued)->issued;
  for (OpLaunch& launch : launches)
    for (Nanos* at : {&launch.issued, &launch.begin, &launch.end}) *at -= first;
  return launches;
}

}  // namespace

std::chrono::seconds patience_for(const Program& program) {
  std::int64_t longest = 0;
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments)
      for (const Op& op : segment.ops) {
        if (const auto* kernel = std::get_if<Kernel>(&op.body))
          longest = std::max(longest, kernel->flops / kSlowFlops + kernel->bytes() / kSlowBytes);
        if (const auto* collective = std::get_if<Collective>(&op.body))
          longest = std::max(
              longest, (collective->input.touched_bytes() + collective->output.touched_bytes()) /
                           kSlowBytes);
      }
  return std::chrono::seconds(kLeastPatience + longest);
}

CpuRun::CpuRun(const Program& program, MachineSettings settings)
    : program_(program), machine_(program, std::move(settings)) {}

Result<std::unique_ptr<CpuRun>> CpuRun::create(const Program& program, const ExecOptions& options,
                                               const TrainSettings& settings) {
  MFSDP_TRY(check_room(program));
  MFSDP_LET(machine, machine_settings(program, options, settings));
  try {
    return std::unique_ptr<CpuRun>(new CpuRun(program, std::move(machine)));
  } catch (const std::system_error& error) {
    return fail(
        "--world-size",
        fmt::format("{} ranks with {} threads each do not start: {}",
                    program.config.mesh.world_size(), program.streams.size() + 1, error.what()),
        Fault::environment);
  }
}

Result<void> CpuRun::train(const TrainInputs& inputs, TrainSink& sink, const HfExport* exported) {
  std::vector<std::vector<OpLaunch>> launches(
      static_cast<std::size_t>(program_.config.mesh.world_size()));
  const auto outcome = machine_.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MemoryMeter meter(program_, predicted_plan, backend);
    MFSDP_LET(trainer, Trainer::create(program_, meter, rank, inputs, rank == 0 ? &sink : nullptr));
    const auto ran = trainer->run();
    if (rank == 0) measured_.memory = meter.measured();
    MFSDP_TRY(ran);
    const std::vector<OpTiming> timings = backend.take_timings();
    launches[static_cast<std::size_t>(rank)] = launches_of(program_, rank, timings);
    if (rank == 0)
      measured_.step = measure_step(program_, *program_.find_plan(predicted_plan), timings);
    if (exported == nullptr) return {};
    return exported->write(rank, meter, trainer->parameters(), *inputs.gather);
  });
  if (outcome) measured_.launches = kept(launches);
  return outcome;
}

Bytes CpuRun::allocated() const {
  const std::vector<Bytes> pools = machine_.allocated(0);
  Bytes sum;
  for (std::size_t i = 0; i < std::min(pools.size(), program_.pools.size()); ++i)
    if (program_.pools[i].space == MemorySpace::device) sum += pools[i];
  return sum;
}

}  // namespace mfsdp
