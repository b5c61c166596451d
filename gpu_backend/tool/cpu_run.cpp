#include "gpu_backend/tool/cpu_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "core/cli/format.hpp"
#include "core/plan/instances.hpp"
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
Result<void> check_room(const Job& job) {
  const std::int64_t ranks = job.programs.front().config.mesh.world_size();
  if (ranks > kMostCpuRanks)
    return fail("--world-size",
                fmt::format("{} ranks are too many for one machine's CPU: expected at most {}",
                            ranks, kMostCpuRanks));
  Bytes needed;
  for (const std::uint32_t of_rank : class_of_ranks(job))
    for (const Pool& pool : job.programs[of_rank].pools)
      needed = Bytes(checked_add(needed.value, pool.height.value));
  if (needed <= physical_memory()) return {};
  return fail("memory",
              fmt::format("{} ranks need {} in pools, this machine has {}", ranks,
                          format_bytes(needed), format_bytes(physical_memory())),
              Fault::environment);
}

Result<MachineSettings> machine_settings(const Job& job, const ExecOptions& options,
                                         const TrainSettings& training) {
  MachineSettings settings;
  // Kernels ask for groups and configuration, which all classes share.
  const KernelSettings kernels{.program = &job.programs.front(),
                               .optimizer = training.optimizer,
                               .ignore_index = kIgnoreIndex};
  settings.kernel = [kernels](const KernelCall& call) { return run_kernel(call, kernels); };
  settings.deadline =
      options.deadline ? std::chrono::seconds(*options.deadline) : patience_for(job.programs);
  if (options.chaos) settings.chaos = static_cast<std::uint64_t>(*options.chaos);
  settings.poison = options.poison;
  settings.timed_steps = kTimedSteps;
  if (options.fault) {
    if (options.fault->kind == FaultKind::kill)
      return fail("--fault", "kills a process: on the CPU all ranks are one");
    MFSDP_LET(fault, fault_of(*options.fault, job.programs));
    settings.faults.fault = fault;
  }
  return settings;
}

std::int64_t longest_op(const Program& program) {
  std::int64_t longest = 0;
  for (const Plan& plan : program.plans)
    for (const Op& op : ops_of(plan)) {
      if (const auto* kernel = std::get_if<Kernel>(&op.body))
        longest = std::max(longest, kernel->flops / kSlowFlops + kernel->bytes() / kSlowBytes);
      if (const auto* collective = std::get_if<Collective>(&op.body))
        longest = std::max(
            longest,
            (collective->input.touched_bytes() + collective->output.touched_bytes()) / kSlowBytes);
    }
  return longest;
}

}  // namespace

std::chrono::seconds patience_for(std::span<const Program> programs) {
  std::int64_t longest = 0;  // seconds
  for (const Program& program : programs) longest = std::max(longest, longest_op(program));
  return std::chrono::seconds(kLeastPatience + longest);
}

CpuRun::CpuRun(const Job& job, MachineSettings settings, std::function<bool()> stop)
    : job_(job),
      machine_(job.programs, std::move(settings)),
      stop_(std::move(stop)),
      gather_(job.programs.front().config.mesh.world_size(),
              [this](std::int64_t rank, bool waits) { machine_.host_waits(rank, waits); }) {}

Result<std::unique_ptr<CpuRun>> CpuRun::create(const Job& job, const ExecOptions& options,
                                               const TrainSettings& settings,
                                               std::function<bool()> stop) {
  MFSDP_TRY(check_room(job));
  MFSDP_LET(machine, machine_settings(job, options, settings));
  try {
    return std::unique_ptr<CpuRun>(new CpuRun(job, std::move(machine), std::move(stop)));
  } catch (const std::system_error& error) {
    const Program& program = job.programs.front();
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
  const std::vector<std::uint32_t> classes = class_of_ranks(job_);
  const std::int64_t reporting = reporting_rank(job_.programs);
  const std::int64_t fullest = fullest_rank(job_.programs);
  std::vector<RanRank> ranks(classes.size());
  const auto outcome = machine_.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    const Program& program = job_.programs[classes[static_cast<std::size_t>(rank)]];
    MemoryMeter meter(program, PlanRole::train, backend);
    MFSDP_LET(trainer, Trainer::create(job_.programs, meter, rank, inputs,
                                       rank == reporting ? sink : nullptr));
    const auto ran = trainer->run();
    RanRank& measured = ranks[static_cast<std::size_t>(rank)];
    measured.memory = meter.measured();
    if (rank == fullest) measured_.memory = measured.memory;  // also of a run that failed
    MFSDP_TRY(ran);
    measured.launches = launches_of(program, rank, backend.take_timings());
    for (const HfExport& to : exported)
      MFSDP_TRY(to.write(rank, meter, trainer->parameters(), *inputs.gather));
    return {};
  });
  if (outcome) measured_ = ran_run(job_.programs, std::move(ranks));
  return outcome;
}

Bytes CpuRun::allocated() const {
  const std::int64_t rank = fullest_rank(job_.programs);
  return on_device(program_of(job_.programs, rank), machine_.allocated(rank));
}

/// The process's memory outside the pools cannot be attributed to ranks.
MachineFacts CpuRun::facts() const {
  const std::int64_t ranks = job_.programs.front().config.mesh.world_size();
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
