// Who am I: which ranks of a run this process is, or starts, and where they meet.
//
//   flags > MFSDP_* > torchrun > Open MPI > PMI > SLURM > one rank for each GPU that is seen
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Environment variables by name.
using Environment = std::map<std::string, std::string, std::less<>>;

/// "NAME=value" texts up to the null, as `environ` has them.
[[nodiscard]] Environment read_environment(const char* const* texts);

/// Whether a supervisor started this process.
[[nodiscard]] bool is_supervised(const Environment& environment);

/// What said who we are. `self_spawn`: nobody did.
enum class LaunchSource { flags, mfsdp, torchrun, open_mpi, pmi, slurm, self_spawn };

template <>
struct Names<LaunchSource> {
  static constexpr std::array<std::string_view, 7> values{"flags", "mfsdp", "torchrun",  "open_mpi",
                                                          "pmi",   "slurm", "self_spawn"};
};

/// One rank's place among all, and among those of its host.
struct RankPlace {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = 0;  ///< which GPU, of those that are visible
  std::int64_t local_world_size = 1;
  LaunchSource source = LaunchSource::self_spawn;

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

/// Where rank 0 listens and all others call.
struct MeetingPoint {
  std::string address;     ///< of rank 0's host: a name or a number
  std::uint16_t port = 0;  ///< 0: one that the supervisor finds (all ranks are its children)

  friend bool operator==(const MeetingPoint&, const MeetingPoint&) = default;
};

/// What a rank inherits from its supervisor.
struct Supervision {
  std::int64_t supervisor = 0;       ///< process id
  int watchdog = 0;                  ///< file descriptor that Watchdog reports to
  std::optional<int> listener = {};  ///< socket that listens at the meeting point already (rank 0)

  friend bool operator==(const Supervision&, const Supervision&) = default;
};

/// The answer of resolve_launch. Three kinds of processes come from it:
///
///   supervised                 this process is rank `place.rank`: it trains
///   neither                    another launcher made it one rank: it supervises that one
///   starts_ranks               it supervises ranks place.rank ... + place.local_world_size - 1
struct RankLaunch {
  RankPlace place;
  bool starts_ranks = false;
  MeetingPoint meeting;
  std::string run_id;  ///< equal on all ranks; empty where the launcher has none
  /// By which the ranks know each other; empty where the user does without. None before
  /// settle_secret (secret.hpp), and for a rank whose supervisor gave it none.
  std::optional<std::string> secret;
  std::optional<Supervision> supervised;

  friend bool operator==(const RankLaunch&, const RankLaunch&) = default;
};

/// What the command line says; all of it beats the environment, but for a supervised rank.
struct LaunchFlags {
  std::optional<std::int64_t> ranks_per_node = {};  ///< --nproc: start so many here
  std::optional<std::int64_t> nodes = {};           ///< hosts with as many each; 1 unless given
  std::optional<std::int64_t> node_rank = {};       ///< of this host, from 0
  std::optional<std::string> meeting = {};  ///< ADDRESS:PORT of rank 0; needed for several hosts
};

/// Pure: the same environment gives the same answer. `visible_gpus` is for self-spawn alone, which
/// starts one rank where there are none.
///
/// A source counts as soon as one of the variables that make it is set; then all that it needs must
/// be there and fit: 0 <= rank < world size, local likewise. SLURM with one task is none: an
/// interactive allocation sets that too. Meeting point: MFSDP_MASTER_ADDR and MFSDP_MASTER_PORT,
/// else the source's own: torchrun's MASTER_ADDR and MASTER_PORT + 1 (its agent holds the port
/// itself), the first host of SLURM's list and a port from the job's number, 127.0.0.1 where all
/// ranks are on one host. Errors name the variable, its value and what was expected.
[[nodiscard]] Result<RankLaunch> resolve_launch(const Environment& environment,
                                                const LaunchFlags& flags,
                                                std::int64_t visible_gpus);

/// The ranks that this process is to start: one unless launch.starts_ranks.
[[nodiscard]] std::vector<RankPlace> places_to_start(const RankLaunch& launch);

/// What a supervisor gives a rank: `environment` with the MFSDP_* from which resolve_launch makes
/// `launch` again, whatever else is set. launch.supervised holds.
[[nodiscard]] Environment supervised_environment(Environment environment, const RankLaunch& launch);

/// GPUs that a CUDA program started here would see, found without a CUDA call: CUDA_VISIBLE_DEVICES
/// up to its first invalid entry, else the files nvidia0, nvidia1, ... in `devices`.
[[nodiscard]] std::int64_t count_visible_gpus(const Environment& environment,
                                              const std::filesystem::path& devices = "/dev");

}  // namespace mfsdp
