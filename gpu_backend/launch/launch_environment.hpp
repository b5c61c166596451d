// Finds out which ranks of a run this process is, or starts, and where they connect.
//
//   flags > MFSDP_* > torchrun > Open MPI > PMI > SLURM > one rank for each GPU that is seen
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Environment variables by name.
using Environment = std::map<std::string, std::string, std::less<>>;

/// "NAME=value" strings up to a null pointer, as in `environ`.
[[nodiscard]] Environment read_environment(const char* const* texts);

/// Whether a supervisor started this process.
[[nodiscard]] bool is_supervised(const Environment& environment);

/// The source of this process's rank. `self_spawn`: no launcher, so this process starts the ranks.
enum class LaunchSource { flags, mfsdp, torchrun, open_mpi, pmi, slurm, self_spawn };

constexpr auto value_names(LaunchSource) {
  return name_array("flags", "mfsdp", "torchrun", "open_mpi", "pmi", "slurm", "self_spawn");
}

/// One rank's number among all ranks, and among those of its host.
struct RankPlace {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;  ///< index of its GPU among the visible ones
  std::int64_t local_world_size = 1;
  LaunchSource source = LaunchSource::self_spawn;

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// Where rank 0 listens and all others connect.
struct MeetingPoint {
  std::string address;     ///< name or IP address of rank 0's host
  std::uint16_t port = 0;  ///< 0: the supervisor chooses one (all ranks are its children)

  friend bool operator==(const MeetingPoint&, const MeetingPoint&) = default;
};

/// A rank's inheritance from its supervisor.
struct Supervision {
  std::int64_t supervisor = 0;       ///< process id
  int watchdog = 0;                  ///< file descriptor to which Watchdog reports
  std::optional<int> listener = {};  ///< socket that already listens at the meeting point (rank 0)

  friend bool operator==(const Supervision&, const Supervision&) = default;
};

/// Result of resolve_launch. It describes one of three kinds of processes:
///
///   supervised                 this process is rank `place.rank`: it trains
///   neither                    another launcher made it one rank: it supervises that rank
///   starts_ranks               it supervises ranks place.rank ... + place.local_world_size - 1
struct RankLaunch {
  RankPlace place;
  bool starts_ranks = false;
  MeetingPoint meeting;
  std::string run_id;  ///< equal on all ranks; empty if the launcher has none
  /// Proves that ranks belong to one run; empty if the user disabled it. None before settle_secret
  /// (secret.hpp), and for a rank whose supervisor gave it none.
  std::optional<std::string> secret;
  std::optional<Supervision> supervised;

  friend bool operator==(const RankLaunch&, const RankLaunch&) = default;
};

/// Flags of the command line. They override the environment, except in a supervised rank.
struct LaunchFlags {
  std::optional<std::int64_t> ranks_per_node = {};  ///< --nproc: number of ranks to start on this
                                                    ///< host
  std::optional<std::int64_t> nodes = {};           ///< number of hosts, with as many ranks each; 1
                                                    ///< unless given
  std::optional<std::int64_t> node_rank = {};       ///< number of this host, from 0
  std::optional<std::string> meeting = {};  ///< ADDRESS:PORT of rank 0; required for several hosts
};

/// Pure: the same environment gives the same answer. `visible_gpus` matters only for self-spawn,
/// which starts one rank if there are none.
///
/// A source applies as soon as one of the variables that identify it is set. Then all variables
/// that it needs must be set and consistent: 0 <= rank < world size, local ranks likewise. SLURM
/// with one task does not count: an interactive allocation also sets that. The meeting point is
/// MFSDP_MASTER_ADDR and MFSDP_MASTER_PORT. Without them it is the source's own: torchrun's
/// MASTER_ADDR and MASTER_PORT + 1 (its agent holds the port itself); the first host of SLURM's
/// list and a port computed from the job's number; 127.0.0.1 if all ranks are on one host. Errors
/// name the variable, its value and the expected one.
[[nodiscard]] Result<RankLaunch> resolve_launch(const Environment& environment,
                                                const LaunchFlags& flags,
                                                std::int64_t visible_gpus);

/// The ranks that this process starts: one unless launch.starts_ranks.
[[nodiscard]] std::vector<RankPlace> places_to_start(const RankLaunch& launch);

/// The environment of a supervised rank: `environment` and the MFSDP_* variables from which
/// resolve_launch computes `launch` again, whatever else is set. Requires launch.supervised.
[[nodiscard]] Environment supervised_environment(Environment environment, const RankLaunch& launch);

/// Number of GPUs that a CUDA program started here would see, found without a CUDA call:
/// CUDA_VISIBLE_DEVICES up to its first invalid entry, else the files nvidia0, nvidia1, ... in
/// `devices`.
[[nodiscard]] std::int64_t count_visible_gpus(const Environment& environment,
                                              const std::filesystem::path& devices = "/dev");

}  // namespace mfsdp
