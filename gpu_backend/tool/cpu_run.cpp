#include "gpu_backend/tool/cpu_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "core/cli/format.hpp"
#include "gpu_backend/tool/fault_of.hpp"
#include "gpu_backend/tool/process_memory.hpp"
#include "gpu_backend/tool/run_facts.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostCpuRanks = 512;
constexpr std::int64_t kLeastPatience = 6;          ///< seconds
constexpr std::int64_t kSlowFlops = 1'000'000'000;  ///< per second, of a core that other processes
                                                    ///< use too
constexpr std::int64_t kSlowBytes = 500'000'000;    ///< per second

/// Every rank has a host thread and a thread for each stream. All pools are in this machine's
/// memory.
Result<void> check_room(const Program& program) {
  const PlanConfig& config = program.config;
  const std::int64_t ranks = config.mesh.world_size();
  if (ranks > kMostCpuRanks)
    return fail("--world-size",
                fmt::format("{} ranks are too many for one machine's CPU: expected at most {}",
                            ranks, kMostCpuRanks));
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
  settings.timed_steps = kTimedSteps;
  if (options.fault) {
    if (options.fault->kind == FaultKind::kill)
      return fail("--fault", "kills a process: on the CPU all ranks are one");
    MFSDP_LET(fault, fault_of(*options.fault, program));
    settings.faults.fault = fault;
  }
  return settings;
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

CpuRun::CpuRun(const Program& program, MachineSettings settings, std::function<bool()> stop)
    : program_(program),
      machine_(program, std::move(settings)),
      stop_(std::move(stop)),
      gather_(program.config.mesh.world_size(),
              [this](std::int64_t rank, bool waits) { machine_.host_waits(rank, waits); }) {}

Result<std::unique_ptr<CpuRun>> CpuRun::create(const Program& program, const ExecOptions& options,
                                               const TrainSettings& settings,
                                               std::function<bool()> stop) {
  MFSDP_TRY(check_room(program));
  MFSDP_LET(machine, machine_settings(program, options, settings));
  try {
    return std::unique_ptr<CpuRun>(new CpuRun(program, std::move(machine), std::move(stop)));
  } catch (const std::system_error& error) {
    return fail(
        "--world-size",
        fmt::format("{} ranks with {} threads each do not start: {}",
                    program.config.mesh.world_size(), program.streams.size() + 1, error.what()),
        Fault::environment);
  }
}

Result<void> CpuRun::train(TrainInputs inputs, TrainSink* sink,
                           std::span<const HfExport> exported) {
  inputs.stop = &stop_;
  inputs.gather = &gather_;
  std::vector<std::vector<OpLaunch>> launches(
      static_cast<std::size_t>(program_.config.mesh.world_size()));
  const auto outcome = machine_.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MemoryMeter meter(program_, kTrainPlan, backend);
    MFSDP_LET(trainer, Trainer::create(program_, meter, rank, inputs, rank == 0 ? sink : nullptr));
    const auto ran = trainer->run();
    if (rank == 0) measured_.memory = meter.measured();
    MFSDP_TRY(ran);
    launches[static_cast<std::size_t>(rank)] = launches_of(program_, rank, backend.take_timings());
    for (const HfExport& to : exported)
      MFSDP_TRY(to.write(rank, meter, trainer->parameters(), *inputs.gather));
    return {};
  });
  if (outcome) {
    measured_.step = slowest_step(program_, *program_.find_plan(kTrainPlan), launches);
    measured_.launches = kept_launches(launches);
  }
  return outcome;
}

Bytes CpuRun::allocated() const { return on_device(program_, machine_.allocated(0)); }

/// The process's memory outside the pools cannot be attributed to ranks.
MachineFacts CpuRun::facts() const {
  const std::int64_t ranks = program_.config.mesh.world_size();
  return {.cluster = {.gpu = "cpu",
                      .gpus = ranks,
                      .nodes = 1,
                      .gpus_per_node = ranks,
                      .network = "threads of one process"},
          .ranks = fmt::format("{} ranks of the CPU", ranks),
          .capacity = physical_memory(),
          .sharing = ranks,
          .runtime_source = "not measured: ranks share a process",
          .process =
              "process: " + format_bytes(resident_high_water()) + " resident at most, all ranks\n",
          .facts = cpu_facts()};
}

}  // namespace mfsdp
