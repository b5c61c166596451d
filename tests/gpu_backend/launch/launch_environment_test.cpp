#include "gpu_backend/launch/launch_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Environment kTorchrun{{"RANK", "5"},
                            {"LOCAL_RANK", "1"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "head"},
                            {"MASTER_PORT", "29500"},
                            {"GROUP_RANK", "1"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"TORCHELASTIC_RUN_ID", "job"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"MFSDP_MASTER_ADDR", "10.0.0.1"}};
const Environment kPmi{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSlurm{{"SLURM_PROCID", "9"},
                         {"SLURM_NTASKS", "12"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NTASKS_PER_NODE", "4"},
                         {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "3"},
                         {"SLURM_JOB_NODELIST", "gpu[007-008,12]"}};
const Environment kMfsdp{{"MFSDP_RANK", "2"},          {"MFSDP_WORLD_SIZE", "3"},
                         {"MFSDP_LOCAL_RANK", "0"},    {"MFSDP_LOCAL_WORLD_SIZE", "1"},
                         {"MFSDP_MASTER_ADDR", "::1"}, {"MFSDP_MASTER_PORT", "4000"},
                         {"MFSDP_RUN_ID", "mine"}};

RankLaunch resolved(const Environment& environment, const LaunchFlags& flags = {},
                    std::int64_t gpus = 8) {
  const auto launch = resolve_launch(environment, flags, gpus);
  EXPECT_TRUE(launch) << (launch ? "" : launch.error().message());
  return launch.value_or(RankLaunch{});
}

std::string refusal(const Environment& environment, const LaunchFlags& flags = {}) {
  const auto launch = resolve_launch(environment, flags, 8);
  return launch ? "no error" : launch.error().message();
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  EXPECT_EQ(environment.erase(name), 1u) << name;
  return environment;
}

Environment joined(Environment first, const Environment& second) {
  first.insert(second.begin(), second.end());
  return first;
}

// ---- variables of each source ------------------------------------------------------------------

TEST(LaunchEnvironment, TorchrunWithThePortBehindItsOwn) {
  const RankLaunch launch = resolved(kTorchrun);
  EXPECT_EQ(launch.place, (RankPlace{5, 8, 1, 4, LaunchSource::torchrun}));
  EXPECT_EQ(launch.meeting, (MeetingPoint{"head", 29501}));
  EXPECT_EQ(launch.run_id, "job.2");
  EXPECT_FALSE(launch.starts_ranks);
  EXPECT_FALSE(launch.supervised);
}

TEST(LaunchEnvironment, OwnVariables) {
  const RankLaunch launch = resolved(kMfsdp);
  EXPECT_EQ(launch.place, (RankPlace{2, 3, 0, 1, LaunchSource::mfsdp}));
  EXPECT_EQ(launch.meeting, (MeetingPoint{"::1", 4000}));
  EXPECT_EQ(launch.run_id, "mine");
}

TEST(LaunchEnvironment, OpenMpi) {
  const RankLaunch launch = resolved(kOpenMpi);
  EXPECT_EQ(launch.place, (RankPlace{3, 4, 1, 2, LaunchSource::open_mpi}));
  EXPECT_EQ(launch.meeting.address, "10.0.0.1");
  EXPECT_GE(launch.meeting.port, 20'000);
}

TEST(LaunchEnvironment, PmiOfMpichAndOfCray) {
  EXPECT_EQ(resolved(kPmi).place, (RankPlace{1, 2, 1, 2, LaunchSource::pmi}));
  EXPECT_EQ(resolved(kPmi).meeting.address, "127.0.0.1");  // both are on this host
  const Environment cray{{"PMI_RANK", "1"},
                         {"PMI_SIZE", "2"},
                         {"PMI_LOCAL_RANK", "0"},
                         {"PMI_LOCAL_SIZE", "1"},
                         {"MFSDP_MASTER_ADDR", "nid1"}};
  EXPECT_EQ(resolved(cray).place, (RankPlace{1, 2, 0, 1, LaunchSource::pmi}));
}

TEST(LaunchEnvironment, PmiOfSrunTakesLocalPlacesFromSlurm) {
  const Environment both = joined({{"PMI_RANK", "9"}, {"PMI_SIZE", "12"}}, kSlurm);
  EXPECT_EQ(resolved(both).place, (RankPlace{9, 12, 1, 4, LaunchSource::pmi}));
  EXPECT_EQ(resolved(both).meeting.address, "gpu007");
}

TEST(LaunchEnvironment, Slurm) {
  const RankLaunch launch = resolved(kSlurm);
  EXPECT_EQ(launch.place, (RankPlace{9, 12, 1, 4, LaunchSource::slurm}));
  EXPECT_EQ(launch.meeting.address, "gpu007");
  EXPECT_EQ(launch.run_id, "4711.3");
  // Two jobs on one host meet at two ports, the ranks of one at the same.
  EXPECT_NE(resolved(with(kSlurm, "SLURM_JOB_ID", "4712")).meeting.port, launch.meeting.port);
  EXPECT_EQ(resolved(with(kSlurm, "SLURM_PROCID", "0")).meeting.port, launch.meeting.port);
}

TEST(LaunchEnvironment, SlurmCountsTheStepRatherThanTheAllocation) {
  Environment step = joined({{"SLURM_STEP_NUM_TASKS", "3"},
                             {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_STEP_NODELIST", "gpu008,gpu12"}},
                            kSlurm);
  step["SLURM_PROCID"] = "2";
  step["SLURM_LOCALID"] = "0";
  EXPECT_EQ(resolved(step).place, (RankPlace{2, 3, 0, 1, LaunchSource::slurm}));
  EXPECT_EQ(resolved(step).meeting.address, "gpu008");
}

TEST(LaunchEnvironment, NobodySpeaksAndEachGpuGetsARank) {
  const RankLaunch launch = resolved({{"HOME", "/"}});
  EXPECT_EQ(launch.place, (RankPlace{0, 8, 0, 8, LaunchSource::self_spawn}));
  EXPECT_TRUE(launch.starts_ranks);
  EXPECT_EQ(launch.meeting, (MeetingPoint{"127.0.0.1", 0}));
  EXPECT_EQ(resolved({}, {}, 0).place.world_size, 1);  // no GPU: one rank
}

TEST(LaunchEnvironment, OneTaskOfAnInteractiveAllocationSaysNothing) {
  for (const Environment& shell :
       {Environment{{"SLURM_NTASKS", "1"}},
        with(with(kSlurm, "SLURM_NTASKS", "1"), "SLURM_PROCID", "0"),
        with(with(kSlurm, "SLURM_STEP_NUM_TASKS", "1"), "SLURM_PROCID", "0"),
        Environment{{"SLURM_JOB_ID", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}})
    EXPECT_EQ(resolved(shell).place.source, LaunchSource::self_spawn);
  EXPECT_EQ(resolved({{"PMI_RANK", "0"},
                      {"PMI_SIZE", "1"},
                      {"MPI_LOCALRANKID", "0"},
                      {"MPI_LOCALNRANKS", "1"}})
                .place.source,
            LaunchSource::pmi);  // mpirun -n 1
}

// ---- precedence --------------------------------------------------------------------------------

TEST(LaunchEnvironment, EarlierSourcesWin) {
  // From the last to the first: each beats all that were there before.
  Environment environment;
  const auto winner = [&](const Environment& added) {
    environment = joined(added, environment);
    return to_string(resolved(environment).place.source);
  };
  EXPECT_EQ(winner({}), "self_spawn");
  EXPECT_EQ(winner(kSlurm), "slurm");
  EXPECT_EQ(winner(kPmi), "pmi");
  EXPECT_EQ(winner(kOpenMpi), "open_mpi");
  EXPECT_EQ(winner(kTorchrun), "torchrun");
  EXPECT_EQ(winner(kMfsdp), "mfsdp");
  EXPECT_EQ(to_string(resolved(environment, {.ranks_per_node = 2}).place.source), "flags");
}

TEST(LaunchEnvironment, FlagsStartRanksOnOneHostOrSeveral) {
  const RankLaunch one = resolved(kTorchrun, {.ranks_per_node = 3});
  EXPECT_EQ(one.place, (RankPlace{0, 3, 0, 3, LaunchSource::flags}));
  EXPECT_TRUE(one.starts_ranks);
  const RankLaunch two =
      resolved({}, {.ranks_per_node = 3, .nodes = 2, .node_rank = 1, .meeting = "[fe80::1]:29600"});
  EXPECT_EQ(two.meeting, (MeetingPoint{"fe80::1", 29600}));
  const auto places = places_to_start(two);
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[2], (RankPlace{5, 6, 2, 3, LaunchSource::flags}));  // 1 * 3 + 2
  EXPECT_EQ(places_to_start(resolved(kSlurm)).size(), 1u);
}

TEST(LaunchEnvironment, MeetingPointOfTheUserWins) {
  Environment own = with(kTorchrun, "MFSDP_MASTER_PORT", "1234");
  EXPECT_EQ(resolved(own).meeting, (MeetingPoint{"head", 1234}));
  own["MFSDP_MASTER_ADDR"] = "other";
  EXPECT_EQ(resolved(own).meeting, (MeetingPoint{"other", 1234}));
  LaunchFlags flags;
  flags.meeting = "third:99";
  EXPECT_EQ(resolved(own, flags).meeting, (MeetingPoint{"third", 99}));
}

// ---- errors ------------------------------------------------------------------------------------

TEST(LaunchEnvironment, EveryVariableOfASourceIsNeeded) {
  for (const auto& [environment, names] :
       {std::pair(kTorchrun,
                  std::vector<std::string>{"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR", "MASTER_PORT"}),
        std::pair(kMfsdp, std::vector<std::string>{"MFSDP_RANK", "MFSDP_WORLD_SIZE",
                                                   "MFSDP_LOCAL_RANK", "MFSDP_LOCAL_WORLD_SIZE",
                                                   "MFSDP_MASTER_ADDR", "MFSDP_MASTER_PORT"}),
        std::pair(kOpenMpi,
                  std::vector<std::string>{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE", "MFSDP_MASTER_ADDR"}),
        std::pair(kPmi, std::vector<std::string>{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                                 "MPI_LOCALNRANKS"}),
        std::pair(kSlurm, std::vector<std::string>{"SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"})})
    for (const std::string& name : names)
      EXPECT_THAT(refusal(without(environment, name)),
                  AllOf(HasSubstr("environment, " + name + ": is not set"), HasSubstr("expected")));
}

TEST(LaunchEnvironment, WrongValuesAreNamed) {
  for (const std::string value : {"", "x", "-1", "8", "1 ", "0x1", "99999999999999999999"})
    EXPECT_EQ(refusal(with(kTorchrun, "RANK", value)),
              "environment, RANK: expected a whole number from 0 to 7, got \"" + value + "\"");
  EXPECT_THAT(refusal(with(kTorchrun, "LOCAL_RANK", "4")), HasSubstr("from 0 to 3"));
  EXPECT_THAT(refusal(with(kTorchrun, "LOCAL_WORLD_SIZE", "9")), HasSubstr("LOCAL_WORLD_SIZE"));
  EXPECT_THAT(refusal(with(kTorchrun, "WORLD_SIZE", "0")), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(refusal(with(kTorchrun, "MASTER_PORT", "65535")), HasSubstr("from 1 to 65534"));
  EXPECT_THAT(refusal(with(kMfsdp, "MFSDP_MASTER_PORT", "65536")), HasSubstr("MFSDP_MASTER_PORT"));
  EXPECT_THAT(refusal(with(kSlurm, "SLURM_JOB_NODELIST", "gpu[001")),
              HasSubstr("environment, SLURM_JOB_NODELIST: expected hosts"));
  EXPECT_THAT(refusal(with(kTorchrun, "RANK", "\n\x1b")), HasSubstr("\"\\n\\x1b\""));
}

TEST(LaunchEnvironment, WrongFlags) {
  EXPECT_THAT(refusal({}, {.ranks_per_node = 0}), HasSubstr("launch flags: 0 ranks"));
  EXPECT_THAT(refusal({}, {.ranks_per_node = 1 << 20, .nodes = 1 << 20}),
              HasSubstr("launch flags"));
  EXPECT_THAT(refusal({}, {.nodes = 2, .meeting = "a:1"}), HasSubstr("this host's number"));
  EXPECT_THAT(refusal({}, {.nodes = 2, .node_rank = 1}), HasSubstr("ADDRESS:PORT"));
  EXPECT_THAT(refusal({}, {.nodes = 2, .node_rank = 2, .meeting = "a:1"}), HasSubstr("0 to 1"));
  for (const std::string meeting : {"", "host", ":1", "host:", "host:0", "host:65536", "[]:1"})
    EXPECT_THAT(refusal({}, {.ranks_per_node = 1, .meeting = meeting}), HasSubstr("ADDRESS:PORT"));
}

// ---- supervised ranks --------------------------------------------------------------------------

RC_GTEST_PROP(LaunchEnvironment, ASupervisedRankReadsWhatItsSupervisorWrote, ()) {
  const auto below = [](std::int64_t end) { return *rc::gen::inRange<std::int64_t>(0, end); };
  RankLaunch launch;
  launch.place.world_size = 1 + below(1000);
  launch.place.rank = below(launch.place.world_size);
  launch.place.local_world_size = 1 + below(launch.place.world_size);
  launch.place.local_rank = below(launch.place.local_world_size);
  launch.place.source = static_cast<LaunchSource>(below(7));
  launch.meeting = {"host", static_cast<std::uint16_t>(below(65536))};
  launch.run_id = *rc::gen::arbitrary<std::string>();
  if (*rc::gen::arbitrary<bool>()) launch.secret = *rc::gen::arbitrary<std::string>();
  launch.supervised = Supervision{.supervisor = 1 + below(100), .watchdog = 5};
  if (*rc::gen::arbitrary<bool>()) launch.supervised->listener = static_cast<int>(below(100));
  // Other launchers' variables, flags that started it, and a supervisor's own supervisor are there.
  Environment before = joined(kTorchrun, kMfsdp);
  before["MFSDP_LISTENER_FD"] = "77";
  before["MFSDP_SECRET"] = "the supervisor's own";
  const auto again =
      resolve_launch(supervised_environment(before, launch), {.ranks_per_node = 8}, 8);
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == launch);
}

TEST(LaunchEnvironment, HalfOfASupervisorIsRefused) {
  RankLaunch launch = resolved(kMfsdp);
  launch.supervised = Supervision{.supervisor = 1, .watchdog = 5};
  const Environment whole = supervised_environment({}, launch);
  for (const char* name :
       {"MFSDP_WATCHDOG_FD", "MFSDP_RANK", "MFSDP_LAUNCHED_BY", "MFSDP_MASTER_PORT"})
    EXPECT_THAT(refusal(without(whole, name)), HasSubstr(name));
}

TEST(LaunchEnvironment, ReadsTextsOfTheSystem) {
  const char* const texts[] = {"A=1", "B=x=y", "C=", "nothing", nullptr};
  EXPECT_EQ(read_environment(texts), (Environment{{"A", "1"}, {"B", "x=y"}, {"C", ""}}));
}

TEST(VisibleGpus, CountsFilesAndWhatIsListed) {
  const test::ScratchFolder devices;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm"})
    test::write_file(devices / name, "");
  const auto count = [&](const char* listed) {
    return count_visible_gpus({{"CUDA_VISIBLE_DEVICES", listed}}, devices.path());
  };
  EXPECT_EQ(count_visible_gpus({}, devices.path()), 4);
  EXPECT_EQ(count("1,3"), 2);
  EXPECT_EQ(count(""), 0);
  EXPECT_EQ(count("0,-1,2"), 1);  // CUDA reads up to the first that is invalid
  EXPECT_EQ(count("0,4"), 1);
  EXPECT_EQ(count("GPU-8f7a,MIG-1"), 2);
  EXPECT_EQ(count_visible_gpus({{"CUDA_VISIBLE_DEVICES", "0"}}, devices / "none"), 0);
}

}  // namespace
}  // namespace mfsdp
