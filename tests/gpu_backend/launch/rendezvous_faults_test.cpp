// Ranks that do not connect, do not fit, die, hang or give up; and unauthenticated connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu_backend/launch/frames.hpp"
#include "gpu_backend/launch/rendezvous.hpp"
#include "gpu_backend/launch/sockets.hpp"
#include "tests/gpu_backend/launch/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using std::chrono::milliseconds;
using test::bytes_of;
using test::connect_raw;
using test::kIdentity;
using test::Meeting;
using test::message_of;
using test::patient;
using test::run_threads;
using testing::Each;
using testing::HasSubstr;

// ---- ranks that do not fit ---------------------------------------------------------------------

/// A world in which rank `rank` connects with `come(rank)`; returns each rank's error of meet().
std::vector<std::string> meet_as(
    std::int64_t processes,
    const std::function<void(std::int64_t, RankLaunch&, MeetingIdentity&)>& come,
    const RendezvousSettings& settings = patient()) {
  const Meeting meeting;
  std::vector<std::string> said(static_cast<std::size_t>(processes));
  run_threads(processes, [&](std::int64_t i) {
    RankLaunch launch = meeting.launch(i, processes);
    MeetingIdentity identity = kIdentity;
    come(i, launch, identity);
    const auto met = Rendezvous::meet(launch, identity, settings);
    said[static_cast<std::size_t>(i)] = message_of(met);
  });
  return said;
}

TEST(RendezvousFaults, AnotherPlanIsNamedOnAllRanks) {
  EXPECT_THAT(meet_as(4,
                      [](std::int64_t i, RankLaunch&, MeetingIdentity& identity) {
                        if (i == 1 || i == 2) identity.plan_hash = "cafe";
                      }),
              Each("rendezvous: ranks differ in their plan hash: \"hash\" on ranks 0, 3; \"cafe\" "
                   "on ranks 1-2"));
}

TEST(RendezvousFaults, AnotherBuildRunOrWorld) {
  EXPECT_THAT(meet_as(2,
                      [](std::int64_t i, RankLaunch&, MeetingIdentity& identity) {
                        if (i == 1) identity.build_id = "older";
                      }),
              Each(HasSubstr("build: \"build\" on rank 0; \"older\" on rank 1")));
  EXPECT_THAT(meet_as(2,
                      [](std::int64_t i, RankLaunch&, MeetingIdentity& identity) {
                        if (i == 1) identity.run_id = "\n";
                      }),
              Each(HasSubstr("run id: \"run\" on rank 0; \"\\n\" on rank 1")));
  EXPECT_THAT(meet_as(2,
                      [](std::int64_t i, RankLaunch& launch, MeetingIdentity&) {
                        if (i == 1) launch.place.world_size = 16;
                      }),
              Each(HasSubstr("world size: 2 on rank 0; 16 on rank 1")));
}

TEST(RendezvousFaults, ADoubleRankIsRefusedOnAll) {
  EXPECT_THAT(meet_as(4,
                      [](std::int64_t i, RankLaunch& launch, MeetingIdentity&) {
                        if (i == 3) launch.place.rank = 1;
                      }),
              Each("rendezvous: 2 processes came as rank 1"));
}

TEST(RendezvousFaults, ARankBeyondTheWorldIsRefusedOnAll) {
  EXPECT_THAT(meet_as(3,
                      [](std::int64_t i, RankLaunch& launch, MeetingIdentity&) {
                        if (i == 2) launch.place.rank = 7;
                      }),
              Each("rendezvous: rank 7 came: expected 0 to 2"));
}

TEST(RendezvousFaults, WhoDidNotComeIsNamedToThoseWhoDid) {
  RendezvousSettings settings = patient();
  settings.meet_deadline = milliseconds(1000);
  EXPECT_THAT(meet_as(
                  2,
                  [](std::int64_t i, RankLaunch& launch, MeetingIdentity&) {
                    launch.place.world_size = 5;
                    if (i == 1) launch.place.rank = 3;
                  },
                  settings),
              Each("rendezvous: ranks 1-2, 4 of 5 did not come within 1 s"));
}

TEST(RendezvousFaults, NobodyAnswers) {
  RankLaunch launch = Meeting().launch(1, 2);  // the listener is gone
  const auto met = Rendezvous::meet(launch, kIdentity, {.meet_deadline = milliseconds(200)});
  EXPECT_THAT(message_of(met), HasSubstr("rank 0 does not answer at 127.0.0.1 port"));
  launch.meeting.address = "no.such.host.invalid";
  const auto lost = Rendezvous::meet(launch, kIdentity, {.meet_deadline = milliseconds(100)});
  EXPECT_THAT(message_of(lost), HasSubstr("rank 0 does not answer at no.such.host.invalid"));
}

TEST(RendezvousFaults, APortThatIsTaken) {
  const Meeting meeting;
  RankLaunch launch = meeting.launch(1, 2);
  launch.place.rank = 0;
  EXPECT_THAT(message_of(Rendezvous::meet(launch, kIdentity, patient())),
              HasSubstr("MFSDP_MASTER_PORT names another"));
}

TEST(RendezvousFaults, AnIdentityThatIsTooLong) {
  MeetingIdentity identity = kIdentity;
  identity.build_id = std::string(257, 'x');
  EXPECT_THAT(message_of(Rendezvous::meet(Meeting().launch(0, 1), identity, patient())),
              HasSubstr("expected at most 256 bytes"));
}

// ---- unauthenticated connections ---------------------------------------------------------------

TEST(RendezvousFaults, StrangersDoNoHarm) {
  const Meeting meeting;
  const FileDescriptor silent = connect_raw(meeting);  // a port scanner
  const FileDescriptor web = connect_raw(meeting);
  static_cast<void>(send_to(web, bytes_of("GET / HTTP/1.1\r\n\r\n")));
  const FileDescriptor huge = connect_raw(meeting);
  auto frame = encode(Hello{.rank = 1, .world_size = 2, .identity = kIdentity});
  frame[11] = std::byte{0x7f};  // two gigabytes follow
  static_cast<void>(send_to(huge, frame));
  const FileDescriptor early = connect_raw(meeting);
  static_cast<void>(send_to(early, encode(RankFailure{.rank = 1, .message = "ha"})));
  const FileDescriptor torn = connect_raw(meeting);
  static_cast<void>(send_to(torn, PayloadWriter().number(1).frame(FrameKind::hello)));
  {
    const FileDescriptor gone = connect_raw(meeting);
  }
  run_threads(2, [&](std::int64_t rank) {
    const auto met = Rendezvous::meet(meeting.launch(rank, 2), kIdentity, patient());
    ASSERT_TRUE(met) << met.error().message();
    EXPECT_TRUE((*met)->barrier());
  });
}

TEST(RendezvousFaults, SomethingElseAnswers) {
  const Meeting meeting;
  std::thread other([&] {
    FileDescriptor socket;
    const FileDescriptor listener(*meeting.launch(0, 2).supervised->listener);
    while (!socket) socket = accept_from(listener);
    static_cast<void>(send_to(socket, bytes_of("220 mail.example ESMTP")));
    std::this_thread::sleep_for(milliseconds(300));
  });
  EXPECT_THAT(message_of(Rendezvous::meet(meeting.launch(1, 2), kIdentity, patient())),
              HasSubstr("is no rank 0 of mfsdp"));
  other.join();
}

// ---- ranks that give up ------------------------------------------------------------------------

/// Connected ranks; `work` returns the error of its last call.
std::vector<std::string> outcomes(std::int64_t world, const RendezvousSettings& settings,
                                  const std::function<Result<void>(Rendezvous&)>& work) {
  const Meeting meeting;
  std::vector<std::string> said(static_cast<std::size_t>(world));
  run_threads(world, [&](std::int64_t rank) {
    auto met = Rendezvous::meet(meeting.launch(rank, world), kIdentity, settings);
    ASSERT_TRUE(met) << met.error().message();
    said[static_cast<std::size_t>(rank)] = message_of(work(**met));
  });
  return said;
}

class FailingRank : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FailingRank, testing::Values(0, 1, 3));

TEST_P(FailingRank, EndsAllWithItsMessage) {
  std::atomic<int> heard = 0;
  RendezvousSettings settings = patient();
  settings.on_failure = [&](const RankFailure& failure) {
    EXPECT_EQ(failure, (RankFailure{GetParam(), "out of memory"}));
    ++heard;
  };
  EXPECT_THAT(outcomes(4, settings,
                       [](Rendezvous& ranks) -> Result<void> {
                         if (ranks.rank() == GetParam()) {
                           ranks.fail("out of memory");
                           ranks.fail("and more");
                         }
                         const auto first = ranks.barrier();
                         EXPECT_EQ(message_of(ranks.broadcast({})), message_of(first));
                         EXPECT_EQ(message_of(ranks.await_turn(0)), message_of(first));
                         EXPECT_TRUE(ranks.failure());
                         return first;
                       }),
              Each("rank " + std::to_string(GetParam()) + ": out of memory"));
  EXPECT_EQ(heard, 4);
}

TEST(RendezvousFaults, OtherCallsAreTold) {
  EXPECT_THAT(outcomes(3, patient(),
                       [](Rendezvous& ranks) -> Result<void> {
                         if (ranks.rank() != 2) return ranks.barrier();
                         std::this_thread::sleep_for(milliseconds(200));
                         MFSDP_TRY(ranks.all_gather({}));
                         return {};
                       }),
              Each(testing::MatchesRegex("rank 2: calls all_gather as its collective 0, where rank "
                                         ". calls barrier as its collective 0")));
}

TEST(RendezvousFaults, TooManyBytes) {
  EXPECT_THAT(outcomes(2, patient(),
                       [](Rendezvous& ranks) -> Result<void> {
                         const std::vector<std::byte> bytes(
                             ranks.rank() == 1 ? kMostRendezvousBytes + 1 : 0);
                         MFSDP_TRY(ranks.all_gather(bytes));
                         return {};
                       }),
              Each("rank 1: 16777217 bytes for one all_gather: expected at most 16777216"));
}

TEST(RendezvousFaults, WhoDoesNotComeToACallIsNamed) {
  RendezvousSettings settings = patient();
  settings.call_deadline = milliseconds(500);
  EXPECT_THAT(outcomes(4, settings,
                       [](Rendezvous& ranks) -> Result<void> {
                         if (ranks.rank() % 2 == 0) return ranks.barrier();
                         while (!ranks.failure()) std::this_thread::sleep_for(milliseconds(5));
                         return tl::unexpected<Error>(ranks.failure()->error());
                       }),
              Each("rank 1: ranks 1, 3 did not come to barrier (collective 0) within 0.5 s"));
}

TEST(RendezvousFaults, WhoHasLeftIsMissed) {
  EXPECT_THAT(
      outcomes(3, patient(),
               [](Rendezvous& ranks) -> Result<void> {
                 if (ranks.rank() == 1) return {};
                 return ranks.barrier();
               }),
      testing::ElementsAre(testing::MatchesRegex("rank 1: has left while rank . calls barrier"), "",
                           testing::MatchesRegex("rank 1: has left while rank . calls barrier")));
  EXPECT_THAT(outcomes(3, patient(),
                       [](Rendezvous& ranks) -> Result<void> {
                         if (ranks.rank() == 0) return {};
                         MFSDP_TRY(ranks.await_turn(0));
                         return {};
                       }),
              testing::ElementsAre("", "rank 0: has left the rendezvous",
                                   "rank 0: has left the rendezvous"));
}

TEST(RendezvousFaults, WhatAliveSaysEndsTheCallEverywhere) {
  const auto said = outcomes(3, patient(), [](Rendezvous& ranks) -> Result<void> {
    if (ranks.rank() == 0) {
      while (!ranks.failure()) std::this_thread::sleep_for(milliseconds(5));
      return tl::unexpected<Error>(ranks.failure()->error());
    }
    if (ranks.rank() == 1) return ranks.barrier();
    return ranks.barrier([] { return fail("stream", "hangs"); });
  });
  EXPECT_THAT(said, testing::ElementsAre("rank 2: stream: hangs", "rank 2: stream: hangs",
                                         "stream: hangs"));
}

// ---- processes that die or hang ----------------------------------------------------------------

/// A world of processes that connect, report that in a file, and call barriers forever. Returns the
/// error of each survivor's barrier after `harm` was done to rank `victim`.
std::vector<std::string> survivors(std::int64_t world, std::int64_t victim, int harm,
                                   const RendezvousSettings& settings) {
  const Meeting meeting;
  const test::ScratchFolder folder;
  const auto file = [&](const char* what, std::int64_t rank) {
    return folder / (what + std::to_string(rank));
  };
  std::vector<pid_t> children;
  for (std::int64_t rank = 0; rank < world; ++rank)
    children.push_back(test::start_child([&] {
      auto met = Rendezvous::meet(meeting.launch(rank, world), kIdentity, settings);
      if (!met) return 2;
      auto outcome = (*met)->barrier();
      test::write_file(file("met", rank), "");
      while (outcome) outcome = (*met)->barrier();
      test::write_file(file("said", rank), outcome.error().message());
      return 3;
    }));
  for (std::int64_t rank = 0; rank < world; ++rank)
    while (!std::filesystem::exists(file("met", rank)))
      std::this_thread::sleep_for(milliseconds(5));
  const auto own = static_cast<std::size_t>(victim);
  ::kill(children[own], harm);
  std::vector<std::string> said;
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (i == own) continue;
    EXPECT_EQ(test::wait_for(children[i]), 3);
    said.push_back(test::read_file(file("said", static_cast<std::int64_t>(i))));
  }
  ::kill(children[own], SIGKILL);
  test::wait_for(children[own]);
  return said;
}

class LostRank : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, LostRank, testing::Values(0, 2));

TEST_P(LostRank, KilledIsNamedByAllOthers) {
  EXPECT_THAT(survivors(4, GetParam(), SIGKILL, patient()),
              Each(testing::StartsWith("rank " + std::to_string(GetParam()) + ": its ")));
}

TEST_P(LostRank, StoppedIsNamedByAllOthers) {
  RendezvousSettings settings = patient();
  settings.silence = milliseconds(2000);
  EXPECT_THAT(
      survivors(4, GetParam(), SIGSTOP, settings),
      Each(HasSubstr("rank " + std::to_string(GetParam()) + ": it sent no heartbeat for 2 s")));
}

TEST(RendezvousFaults, ARankThatDiesBeforeAllHaveComeEndsTheMeeting) {
  const Meeting meeting;
  const pid_t child = test::start_child(
      [&] { return Rendezvous::meet(meeting.launch(1, 3), kIdentity, patient()) ? 0 : 1; });
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(500));
    ::kill(child, SIGKILL);
  });
  const auto met = Rendezvous::meet(meeting.launch(0, 3), kIdentity, patient());
  killer.join();
  test::wait_for(child);
  EXPECT_EQ(message_of(met), "rendezvous: rank 1 went away before all had come");
}

}  // namespace
}  // namespace mfsdp
