#include "gpu_backend/tool/run_place.hpp"

#include <fmt/format.h>

#include <string_view>

#include "core/cli/flags.hpp"
#include "gpu_backend/launch/launch_sources.hpp"
#include "gpu_backend/launch/supervisor.hpp"

namespace mfsdp {
namespace {

LaunchFlags launch_flags(const ExecOptions& options) {
  return {.ranks_per_node = options.ranks_per_node,
          .nodes = options.nodes,
          .node_rank = options.node_rank,
          .meeting = options.master};
}

bool world_size_is_given(const ExecOptions& options) {
  return contains(options.given, "--world-size") || contains(options.given, "--gpus");
}

}  // namespace

Result<RunPlace> find_run_place(const ExecOptions& options, const Environment& environment,
                                bool has_cuda) {
  if (options.backend == BackendChoice::cpu) return RunPlace{};
  const bool asked = options.backend == BackendChoice::cuda;
  // If `auto` selects the CPU, flags for GPUs would have no effect.
  const auto on_the_cpu = [&](std::string_view reason) -> Result<RunPlace> {
    for (const char* flag : kGpuFlags)
      if (contains(options.given, flag))
        return fail(flag, fmt::format("is for runs on GPUs: {}", reason), Fault::environment);
    // Each of the processes would train all ranks by itself.
    MFSDP_LET(place, find_place(environment));
    if (place && place->world_size > 1)
      return fail(std::string(to_string(place->source)),
                  fmt::format("started {} ranks, which need GPUs: {}", place->world_size, reason),
                  Fault::environment);
    return RunPlace{};
  };
  if (!has_cuda) {
    if (!asked) return on_the_cpu("this build has no gpu_backend/cuda");
    return fail("--backend cuda", "this build has no gpu_backend/cuda; use cpu",
                Fault::environment);
  }
  const std::int64_t gpus = count_visible_gpus(environment);
  if (gpus == 0) {
    if (!asked) return on_the_cpu("none is visible on this machine");
    return fail("--backend cuda", "no GPU is visible on this machine; use cpu", Fault::environment);
  }
  LaunchFlags flags = launch_flags(options);
  MFSDP_LET(launch, resolve_launch(environment, flags, gpus));
  if (launch.supervised || launch.place.source != LaunchSource::self_spawn ||
      !world_size_is_given(options))
    return RunPlace{.launch = std::move(launch)};
  if (options.common.gpus > gpus) {
    if (!asked) return on_the_cpu(fmt::format("{} are visible", gpus));
    return fail(
        "--world-size",
        fmt::format("{} ranks need as many GPUs, {} are visible", options.common.gpus, gpus),
        Fault::environment);
  }
  flags.ranks_per_node = options.common.gpus;
  MFSDP_LET(fitting, resolve_launch(environment, flags, gpus));
  return RunPlace{.launch = std::move(fitting)};
}

void fit_world_size(const RunPlace& place, ExecOptions& options) {
  if (place.launch && !world_size_is_given(options))
    options.common.gpus = place.launch->place.world_size;
}

Result<void> check_world_size(const RunPlace& place, std::int64_t ranks) {
  if (!place.launch || place.launch->place.world_size == ranks) return {};
  return fail("ranks",
              fmt::format("the plan is for {}, {} were started ({})", ranks,
                          place.launch->place.world_size, to_string(place.launch->place.source)));
}

Result<ExitCode> run_ranks(const RunPlace& place, const ExecOptions& options,
                           const CommandLine& command, const Session& session) {
  // Only one of several supervisors prints.
  const bool speaks = place.launch->place.rank == 0;
  MFSDP_LET(code, supervise(*place.launch, {.arguments = command.arguments,
                                            .environment = command.environment,
                                            .insecure = options.insecure_rendezvous,
                                            .stopping = speaks ? kStopping : "",
                                            .err = &session.err}));
  return static_cast<ExitCode>(code);
}

}  // namespace mfsdp
