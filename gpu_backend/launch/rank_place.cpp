#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gpu_backend/launch/launch_sources.hpp"
#include "gpu_backend/launch/slurm.hpp"
#include "gpu_backend/launch/variables.hpp"

namespace mfsdp {
namespace {

/// Variables of one launcher for a rank's place.
struct PlaceNames {
  LaunchSource source;
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank;
  std::string_view local_world_size;
};

constexpr PlaceNames kMfsdp{LaunchSource::mfsdp, "MFSDP_RANK", "MFSDP_WORLD_SIZE",
                            "MFSDP_LOCAL_RANK", "MFSDP_LOCAL_WORLD_SIZE"};
constexpr PlaceNames kTorchrun{LaunchSource::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE"};
constexpr PlaceNames kOpenMpi{LaunchSource::open_mpi, "OMPI_COMM_WORLD_RANK",
                              "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                              "OMPI_COMM_WORLD_LOCAL_SIZE"};
/// PMI itself defines no local ranks: the launchers of MPICH and Intel MPI add these, Cray's adds
/// others.
constexpr PlaceNames kPmi{LaunchSource::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                          "MPI_LOCALNRANKS"};
constexpr PlaceNames kCrayPmi{LaunchSource::pmi, "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK",
                              "PMI_LOCAL_SIZE"};

/// The variable of the source that is set and so identifies it.
std::optional<std::string_view> sign_of(const Environment& environment, const PlaceNames& names) {
  return first_set(environment, std::array{names.rank, names.world_size, names.local_rank,
                                           names.local_world_size});
}

Result<RankPlace> read_place(const Environment& environment, const PlaceNames& names) {
  const std::string_view sign = sign_of(environment, names).value_or(names.rank);
  RankPlace place;
  place.source = names.source;
  MFSDP_SET(place.world_size,
            read_number(environment, names.world_size, sign, 1, kMostLaunchedRanks));
  MFSDP_SET(place.rank, read_number(environment, names.rank, sign, 0, place.world_size - 1));
  MFSDP_SET(place.local_world_size,
            read_number(environment, names.local_world_size, sign, 1, place.world_size));
  MFSDP_SET(place.local_rank,
            read_number(environment, names.local_rank, sign, 0, place.local_world_size - 1));
  return place;
}

// ---- SLURM -------------------------------------------------------------------------------------

/// The size of the step that srun started, instead of the whole allocation's.
std::string_view slurm_world_name(const Environment& environment) {
  return environment.contains("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

/// A step of one task does not count: the shell of an interactive allocation is one.
bool slurm_speaks(const Environment& environment) {
  if (!environment.contains("SLURM_PROCID")) return false;
  const auto world = find_variable(environment, slurm_world_name(environment));
  return world && world != "1";
}

Result<std::int64_t> slurm_local_world(const Environment& environment, std::int64_t world) {
  const auto from_list = [&](std::string_view name) -> Result<std::int64_t> {
    MFSDP_LET(node, read_number(environment, "SLURM_NODEID", name, 0, kMostLaunchedRanks));
    const std::string text = *find_variable(environment, name);
    const auto tasks = slurm_tasks_on(text, node);
    if (!tasks || *tasks > world)
      return refuse_variable(
          name, text,
          fmt::format("the tasks of each node, such as 8(x2),4, with 1 to {} for "
                      "node {} (SLURM_NODEID)",
                      world, node));
    return *tasks;
  };
  if (environment.contains("SLURM_STEP_TASKS_PER_NODE"))
    return from_list("SLURM_STEP_TASKS_PER_NODE");
  if (environment.contains("SLURM_NTASKS_PER_NODE") ||
      !environment.contains("SLURM_TASKS_PER_NODE")) {
    // This is the requested number: a small step may have fewer.
    MFSDP_LET(asked, read_number(environment, "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", 1,
                                 kMostLaunchedRanks));
    return std::min(asked, world);
  }
  return from_list("SLURM_TASKS_PER_NODE");
}

Result<RankPlace> read_slurm(const Environment& environment) {
  const std::string_view sign = "SLURM_PROCID";
  RankPlace place;
  place.source = LaunchSource::slurm;
  MFSDP_SET(place.world_size,
            read_number(environment, slurm_world_name(environment), sign, 1, kMostLaunchedRanks));
  MFSDP_SET(place.rank, read_number(environment, sign, sign, 0, place.world_size - 1));
  MFSDP_SET(place.local_world_size, slurm_local_world(environment, place.world_size));
  MFSDP_SET(place.local_rank,
            read_number(environment, "SLURM_LOCALID", sign, 0, place.local_world_size - 1));
  return place;
}

}  // namespace

Result<RankPlace> read_mfsdp_place(const Environment& environment) {
  return read_place(environment, kMfsdp);
}

Result<std::optional<RankPlace>> find_place(const Environment& environment) {
  for (const PlaceNames& names : {kMfsdp, kTorchrun, kOpenMpi})
    if (sign_of(environment, names)) return read_place(environment, names);
  const bool pmi = environment.contains("PMI_RANK") || environment.contains("PMI_SIZE");
  // Likewise for PMI: SLURM's plugin sets its variables in every step.
  const bool shell =
      environment.contains("SLURM_JOB_ID") && find_variable(environment, "PMI_SIZE") == "1";
  if (pmi && !shell) {
    const bool cray = environment.contains(kCrayPmi.local_rank) ||
                      environment.contains(kCrayPmi.local_world_size);
    if (slurm_speaks(environment) && !cray && !environment.contains(kPmi.local_rank)) {
      MFSDP_LET(place, read_slurm(environment));  // srun's PMI: SLURM has the local ranks
      place.source = LaunchSource::pmi;
      return place;
    }
    return read_place(environment, cray ? kCrayPmi : kPmi);
  }
  if (slurm_speaks(environment)) return read_slurm(environment);
  return std::nullopt;
}

}  // namespace mfsdp
