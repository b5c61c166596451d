#include <fmt/format.h>

#include <array>

#include "core/base/excerpt.hpp"
#include "gpu_backend/launch/launch_sources.hpp"
#include "gpu_backend/launch/slurm.hpp"
#include "gpu_backend/launch/variables.hpp"

namespace mfsdp {
namespace {

/// The host of rank 0; none without SLURM.
Result<std::optional<std::string>> slurm_host(const Environment& environment) {
  const auto name = first_set(
      environment, std::array<std::string_view, 2>{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (!name) return std::nullopt;
  const std::string text = *find_variable(environment, *name);
  auto host = first_slurm_host(text);
  if (!host) return refuse_variable(*name, text, "hosts such as gpu[001-004,7],gpu9");
  return host;
}

/// A port derived from the run's id (FNV-1a), so that two jobs on one host use different ports. It
/// is below the ports that Linux gives to outgoing connections.
std::uint16_t port_of(std::string_view run_id) {
  constexpr std::uint32_t kFirst = 20'000;
  constexpr std::uint32_t kEnd = 32'768;
  std::uint32_t hash = 2'166'136'261U;
  for (const char c : run_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return static_cast<std::uint16_t>(kFirst + hash % (kEnd - kFirst));
}

Result<std::string> address_of(const Environment& environment, const RankPlace& place) {
  if (auto own = find_variable(environment, "MFSDP_MASTER_ADDR")) {
    if (own->empty()) return refuse_variable("MFSDP_MASTER_ADDR", *own, "rank 0's host");
    return *own;
  }
  if (auto master = find_variable(environment, "MASTER_ADDR");
      master && !master->empty() && place.source != LaunchSource::mfsdp)
    return *master;
  if (place.local_world_size == place.world_size) return std::string(kThisHost);
  if (place.source == LaunchSource::torchrun)
    return refuse_missing("MASTER_ADDR", "RANK", "rank 0's host");
  if (place.source != LaunchSource::mfsdp) {
    MFSDP_LET(host, slurm_host(environment));
    if (host) return *host;
  }
  return fail("environment, MFSDP_MASTER_ADDR",
              fmt::format("is not set: expected rank 0's host, since {} does not provide it",
                          to_string(place.source)));
}

Result<std::uint16_t> meeting_port(const Environment& environment, const RankPlace& place,
                                   const std::string& run_id) {
  if (environment.contains("MFSDP_MASTER_PORT")) {
    MFSDP_LET(port, read_number(environment, "MFSDP_MASTER_PORT", "", 1, kMostPort));
    return static_cast<std::uint16_t>(port);
  }
  if (place.source == LaunchSource::torchrun) {
    MFSDP_LET(port, read_number(environment, "MASTER_PORT", "RANK", 1, kMostPort - 1));
    return static_cast<std::uint16_t>(port + 1);
  }
  if (place.source == LaunchSource::mfsdp)
    return refuse_missing("MFSDP_MASTER_PORT", "MFSDP_RANK",
                          "a port that is free on rank 0's host");
  return port_of(run_id);
}

}  // namespace

std::string find_run_id(const Environment& environment, LaunchSource source) {
  const auto joined = [&](std::string_view first, std::string_view second) {
    const auto id = find_variable(environment, first);
    const auto part = find_variable(environment, second);
    return id ? *id + (part ? "." + *part : "") : std::string();
  };
  if (const auto own = find_variable(environment, "MFSDP_RUN_ID")) return *own;
  if (source == LaunchSource::torchrun)
    return joined("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT");
  if (source == LaunchSource::open_mpi && environment.contains("PMIX_NAMESPACE"))
    return *find_variable(environment, "PMIX_NAMESPACE");
  if (source == LaunchSource::open_mpi || source == LaunchSource::pmi ||
      source == LaunchSource::slurm)
    return joined("SLURM_JOB_ID", "SLURM_STEP_ID");
  return {};
}

Result<MeetingPoint> parse_meeting(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const auto port = colon == std::string_view::npos
                        ? std::nullopt
                        : parse_number(text.substr(colon + 1), 1, kMostPort);
  std::string_view address = text.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);
  if (!port || address.empty())
    return fail("meeting point",
                fmt::format("expected ADDRESS:PORT of rank 0, such as node0:29600, got \"{}\"",
                            excerpt(text)));
  return MeetingPoint{.address = std::string(address), .port = static_cast<std::uint16_t>(*port)};
}

Result<MeetingPoint> find_meeting(const Environment& environment, const LaunchFlags& flags,
                                  const RankPlace& place, const std::string& run_id) {
  if (flags.meeting) return parse_meeting(*flags.meeting);
  // One rank connects to no other, so missing variables of the launcher do not matter.
  if (place.world_size == 1) return MeetingPoint{.address = std::string(kThisHost), .port = 0};
  MFSDP_LET(address, address_of(environment, place));
  MFSDP_LET(port, meeting_port(environment, place, run_id));
  return MeetingPoint{.address = address, .port = port};
}

}  // namespace mfsdp
