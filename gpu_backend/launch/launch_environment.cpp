#include "gpu_backend/launch/launch_environment.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "gpu_backend/launch/launch_sources.hpp"
#include "gpu_backend/launch/variables.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kSupervisorSign = "MFSDP_SUPERVISOR";
constexpr std::int64_t kMostDescriptor = std::numeric_limits<std::int32_t>::max();

// ---- ranks that this process starts ------------------------------------------------------------

Result<RankLaunch> start_here(const Environment& environment, const LaunchFlags& flags,
                              std::int64_t visible_gpus) {
  const bool asked = flags.ranks_per_node || flags.nodes || flags.node_rank;
  const std::int64_t local = flags.ranks_per_node.value_or(std::max<std::int64_t>(visible_gpus, 1));
  const std::int64_t nodes = flags.nodes.value_or(1);
  const auto refuse = [](std::string what) { return fail("launch flags", std::move(what)); };
  if (local < 1 || nodes < 1 || local > kMostLaunchedRanks / nodes)
    return refuse(fmt::format("{} ranks on each of {} hosts: expected 1 to {} in all", local, nodes,
                              kMostLaunchedRanks));
  const std::int64_t node = flags.node_rank.value_or(0);
  if (node < 0 || node >= nodes)
    return refuse(fmt::format("this host is number {}: expected 0 to {}", node, nodes - 1));
  if (nodes > 1 && (!flags.node_rank || !flags.meeting))
    return refuse(
        fmt::format("{} hosts: expected this host's number and rank 0's ADDRESS:PORT too", nodes));
  RankLaunch launch;
  launch.place = {.rank = node * local,
                  .world_size = nodes * local,
                  .local_rank = 0,
                  .local_world_size = local,
                  .source = asked ? LaunchSource::flags : LaunchSource::self_spawn};
  launch.starts_ranks = true;
  launch.meeting.address = kThisHost;
  launch.run_id = find_variable(environment, "MFSDP_RUN_ID").value_or("");
  if (flags.meeting) MFSDP_SET(launch.meeting, parse_meeting(*flags.meeting));
  return launch;
}

// ---- ranks that a supervisor has started -------------------------------------------------------

Result<RankLaunch> read_supervised(const Environment& environment) {
  const std::string_view sign = kSupervisorSign;
  MFSDP_LET(supervisor, read_number(environment, sign, sign, 1, kMostDescriptor));
  MFSDP_LET(watchdog, read_number(environment, "MFSDP_WATCHDOG_FD", sign, 0, kMostDescriptor));
  RankLaunch launch;
  launch.supervised = Supervision{
      .supervisor = supervisor, .watchdog = static_cast<int>(watchdog), .listener = std::nullopt};
  if (environment.contains("MFSDP_LISTENER_FD")) {
    MFSDP_LET(listener, read_number(environment, "MFSDP_LISTENER_FD", sign, 0, kMostDescriptor));
    launch.supervised->listener = static_cast<int>(listener);
  }
  MFSDP_SET(launch.place, read_mfsdp_place(environment));
  const std::string by = find_variable(environment, "MFSDP_LAUNCHED_BY").value_or("");
  const auto source = parse<LaunchSource>(by);
  if (!source) return refuse_variable("MFSDP_LAUNCHED_BY", by, "a source, as a supervisor sets it");
  launch.place.source = *source;
  MFSDP_LET(port, read_number(environment, "MFSDP_MASTER_PORT", sign, 0, kMostPort));
  launch.meeting = {.address = find_variable(environment, "MFSDP_MASTER_ADDR").value_or(""),
                    .port = static_cast<std::uint16_t>(port)};
  launch.run_id = find_variable(environment, "MFSDP_RUN_ID").value_or("");
  launch.secret = find_variable(environment, "MFSDP_SECRET");
  return launch;
}

}  // namespace

Environment read_environment(const char* const* texts) {
  Environment environment;
  for (; *texts != nullptr; ++texts) {
    const std::string_view text(*texts);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<RankLaunch> resolve_launch(const Environment& environment, const LaunchFlags& flags,
                                  std::int64_t visible_gpus) {
  if (is_supervised(environment)) return read_supervised(environment);
  if (flags.ranks_per_node || flags.nodes || flags.node_rank)
    return start_here(environment, flags, visible_gpus);
  MFSDP_LET(place, find_place(environment));
  if (!place) return start_here(environment, flags, visible_gpus);
  RankLaunch launch;
  launch.place = *place;
  launch.run_id = find_run_id(environment, place->source);
  MFSDP_SET(launch.meeting, find_meeting(environment, flags, *place, launch.run_id));
  return launch;
}

bool is_supervised(const Environment& environment) { return environment.contains(kSupervisorSign); }

std::vector<RankPlace> places_to_start(const RankLaunch& launch) {
  std::vector<RankPlace> places{launch.place};
  for (std::int64_t i = 1; launch.starts_ranks && i < launch.place.local_world_size; ++i) {
    RankPlace& place = places.emplace_back(launch.place);
    place.rank += i;
    place.local_rank = i;
  }
  return places;
}

Environment supervised_environment(Environment environment, const RankLaunch& launch) {
  const RankPlace& place = launch.place;
  const auto set = [&](std::string_view name, std::string value) {
    environment.insert_or_assign(std::string(name), std::move(value));
  };
  set("MFSDP_RANK", std::to_string(place.rank));
  set("MFSDP_WORLD_SIZE", std::to_string(place.world_size));
  set("MFSDP_LOCAL_RANK", std::to_string(place.local_rank));
  set("MFSDP_LOCAL_WORLD_SIZE", std::to_string(place.local_world_size));
  set("MFSDP_LAUNCHED_BY", std::string(to_string(place.source)));
  set("MFSDP_MASTER_ADDR", launch.meeting.address);
  set("MFSDP_MASTER_PORT", std::to_string(launch.meeting.port));
  set("MFSDP_RUN_ID", launch.run_id);
  environment.erase("MFSDP_SECRET_FILE");
  environment.erase("MFSDP_SECRET");
  if (launch.secret) set("MFSDP_SECRET", *launch.secret);
  set(kSupervisorSign, std::to_string(launch.supervised->supervisor));
  set("MFSDP_WATCHDOG_FD", std::to_string(launch.supervised->watchdog));
  environment.erase("MFSDP_LISTENER_FD");
  if (launch.supervised->listener)
    set("MFSDP_LISTENER_FD", std::to_string(*launch.supervised->listener));
  return environment;
}

}  // namespace mfsdp
