// Ranks that connect while unauthenticated connections call rank 0, or take rank 0's place.
#include "gpu_backend/launch/handshake.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/gpu_backend/launch/ranks.hpp"

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
using testing::HasSubstr;

/// A connection to rank 0 whose frames the test sends itself.
struct Caller {
  explicit Caller(const Meeting& meeting) { peer.socket = connect_raw(meeting); }

  void say(const std::vector<std::byte>& bytes) const {
    static_cast<void>(send_to(peer.socket, bytes));
  }
  Heard hear_next() { return *hear(peer, Clock::now() + std::chrono::seconds(30)); }

  Peer peer;
};

const Hello kRank1{.rank = 1, .world_size = 2, .identity = kIdentity, .nonce = {}};

std::vector<std::byte> wrong_proof() {
  return PayloadWriter().bytes(Bits256{}).frame(FrameKind::proof);
}

/// Both ranks connect while `pending_connection` interferes; rank 0's bytes still reach rank 1.
void meet_beside(const std::function<void(const Meeting&)>& pending_connection) {
  const Meeting meeting;
  std::thread rank_0([&] {
    const auto met = Rendezvous::meet(meeting.launch(0, 2), kIdentity, patient());
    ASSERT_TRUE(met) << met.error().message();
    EXPECT_TRUE((*met)->broadcast(bytes_of("NCCL's id")));
    EXPECT_TRUE((*met)->barrier());
  });
  pending_connection(meeting);
  const auto met = Rendezvous::meet(meeting.launch(1, 2), kIdentity, patient());
  EXPECT_TRUE(met) << message_of(met);
  if (met) {
    EXPECT_EQ((*met)->broadcast({}).value(), bytes_of("NCCL's id"));
    EXPECT_TRUE((*met)->barrier());
  }
  rank_0.join();
}

TEST(Handshake, AHelloWithMadeUpFieldsEndsNothingAndLearnsNothing) {
  meet_beside([](const Meeting& meeting) {
    Caller caller(meeting);
    caller.say(encode(Hello{.rank = 7, .world_size = 9, .identity = {"x", "y", "z"}, .nonce = {}}));
    const Heard heard = caller.hear_next();
    ASSERT_TRUE(heard.frame);
    EXPECT_EQ(heard.frame->kind, FrameKind::challenge);
    EXPECT_EQ(heard.frame->payload.size(), 8 + 32u);  // a length and random bytes, nothing else
    caller.say(wrong_proof());
    EXPECT_TRUE(caller.hear_next().ended);
  });
}

TEST(Handshake, TheRightFieldsWithoutTheSecretMakeNoRank) {
  meet_beside([](const Meeting& meeting) {
    Caller caller(meeting);
    caller.say(encode(kRank1));
    EXPECT_TRUE(caller.hear_next().frame);  // the challenge
    // The bytes that a rank would send from now on.
    caller.say(wrong_proof());
    caller.say(PayloadWriter().number(0).number(0).text("").frame(FrameKind::give));
    const Heard heard = caller.hear_next();
    EXPECT_TRUE(heard.ended);
    EXPECT_FALSE(heard.frame);
  });
}

TEST(Handshake, FramesBeforeTheProofAreNotTaken) {
  meet_beside([](const Meeting& meeting) {
    for (const auto& frame : {encode(RankFailure{.rank = 1, .message = "ha"}),
                              PayloadWriter().number(0).number(0).text("").frame(FrameKind::give)})
      for (const bool says_hello : {false, true}) {
        Caller caller(meeting);
        if (says_hello) {
          caller.say(encode(kRank1));
          EXPECT_TRUE(caller.hear_next().frame);
        }
        caller.say(frame);
        EXPECT_TRUE(caller.hear_next().ended);
      }
  });
}

TEST(Handshake, AStrangerThatGoesAwayEndsNothing) {
  meet_beside([](const Meeting& meeting) {
    Caller caller(meeting);
    caller.say(encode(kRank1));
    EXPECT_TRUE(caller.hear_next().frame);
  });
}

TEST(Handshake, AProofIsOfOneConnectionAlone) {
  meet_beside([](const Meeting& meeting) {
    Caller first(meeting);
    first.say(encode(kRank1));
    const Heard heard = first.hear_next();
    ASSERT_TRUE(heard.frame);
    const auto challenge = PayloadReader(heard.frame->payload).bytes();
    Bits256 bits{};
    ASSERT_EQ(challenge->size(), bits.size());
    std::ranges::copy(*challenge, bits.begin());
    Caller second(meeting);
    second.say(encode(kRank1));
    EXPECT_TRUE(second.hear_next().frame);
    // As if it had been overheard on the first.
    const Bits256 proof = proof_of(Prover::rank, test::kSecret, kRank1, bits);
    second.say(PayloadWriter().bytes(proof).frame(FrameKind::proof));
    EXPECT_TRUE(second.hear_next().ended);
  });
}

TEST(Handshake, AFloodKeepsNoRankOut) {
  for (const bool says_hello : {false, true}) {
    std::vector<FileDescriptor> flood;
    meet_beside([&](const Meeting& meeting) {
      for (int i = 0; i < 400; ++i) {
        flood.push_back(connect_raw(meeting));
        if (says_hello) static_cast<void>(send_to(flood.back(), encode(kRank1)));
      }
    });
  }
}

// ---- errors on each side -----------------------------------------------------------------------

TEST(Handshake, AnotherSecretIsNamedOnBothSides) {
  const Meeting meeting;
  RendezvousSettings settings = patient();
  settings.meet_deadline = milliseconds(3000);
  run_threads(2, [&](std::int64_t rank) {
    RankLaunch launch = meeting.launch(rank, 2);
    if (rank == 1) launch.secret = "another secret than rank 0's";
    const std::string said = message_of(Rendezvous::meet(launch, kIdentity, settings));
    if (rank == 1)
      EXPECT_THAT(said, HasSubstr("drops this rank: expected the same secret on all hosts"));
    else
      EXPECT_THAT(said, testing::MatchesRegex("rendezvous: rank 1 of 2 did not come within 3 s; "
                                              ".* from 127.0.0.1 had another secret"));
  });
}

TEST(Handshake, ARankWithoutASecretDoesNotCall) {
  RankLaunch launch = Meeting().launch(1, 2);
  launch.secret.reset();
  EXPECT_THAT(message_of(Rendezvous::meet(launch, kIdentity, patient())), HasSubstr("no secret"));
}

TEST(Handshake, AnEarlierVersionIsToldAndEndsNothing) {
  meet_beside([](const Meeting& meeting) {
    Caller caller(meeting);
    // A hello of version 1.
    caller.say(
        PayloadWriter().number(1).number(1).number(2).text("run").text("hash").text("build").frame(
            FrameKind::hello));
    const Heard heard = caller.hear_next();
    ASSERT_TRUE(heard.frame);
    EXPECT_EQ(heard.frame->kind, FrameKind::refused);
    EXPECT_EQ(PayloadReader(heard.frame->payload).text(),
              "rank 0 speaks version 2 of the rendezvous, this rank version 1: expected the same "
              "mfsdp-exec on all hosts");
    EXPECT_TRUE(caller.hear_next().ended);
  });
}

/// The error of a rank that calls a fake rank 0, which answers the hello with `first` and the next
/// frame with `second`.
std::string said_to(const std::vector<std::byte>& first, const std::vector<std::byte>& second) {
  const Meeting meeting;
  std::thread other([&] {
    const FileDescriptor listener(*meeting.launch(0, 2).supervised->listener);
    Peer peer;
    while (!peer.socket) peer.socket = accept_from(listener);
    for (const auto& answer : {first, second}) {
      static_cast<void>(hear(peer, Clock::now() + std::chrono::seconds(30)));
      static_cast<void>(send_to(peer.socket, answer));
    }
    static_cast<void>(hear(peer, Clock::now() + std::chrono::seconds(30)));  // until it is closed
  });
  const std::string said = message_of(Rendezvous::meet(meeting.launch(1, 2), kIdentity, patient()));
  other.join();
  return said;
}

TEST(Handshake, AFalseRank0IsNotBelieved) {
  const auto challenge = PayloadWriter().bytes(random_bits()).frame(FrameKind::challenge);
  EXPECT_THAT(said_to(challenge, PayloadWriter().bytes(Bits256{}).frame(FrameKind::accepted)),
              HasSubstr("does not know this run's secret"));
  EXPECT_THAT(said_to(PayloadWriter().frame(FrameKind::welcome), {}),
              HasSubstr("is no rank 0 of mfsdp"));
  EXPECT_THAT(said_to(challenge, PayloadWriter().frame(FrameKind::welcome)),
              HasSubstr("is no rank 0 of mfsdp"));
}

TEST(Handshake, ARank0OfVersion1IsNamed) {
  const auto refusal = PayloadWriter()
                           .text("ranks differ in their protocol version: 1 on rank 0; 2 on rank 1")
                           .frame(FrameKind::refused);
  EXPECT_THAT(said_to(refusal, {}), HasSubstr("refuses this rank: ranks differ in their protocol "
                                              "version: 1 on rank 0; 2 on rank 1"));
}

}  // namespace
}  // namespace mfsdp
