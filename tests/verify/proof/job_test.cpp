// The pipelines of scenarios/pipeline are right, and each way to break one is found.
#include "verify/proof/job.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/pipeline.hpp"
#include "tests/support/pipeline_edits.hpp"

namespace mfsdp {
namespace {

using test::buffer;
using test::drop;
using test::find_op;
using test::ops;
using test::segment;
using test::transfer;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr std::size_t kFirst = 0;   // stage
constexpr std::size_t kSecond = 1;  // and the last

const Job& pipeline() {
  static const Job job = test::pipeline();
  return job;
}

/// Rules of errors that the proof of the pipeline finds after an edit.
std::set<std::string> rules_after(const std::function<void(Job&)>& edit) {
  Job job = pipeline();
  edit(job);
  const auto proof = prove_job(job);
  if (!proof) return {proof.error().message()};
  std::set<std::string> rules;
  for (const Finding& finding : proof->findings)
    if (is_error(finding.rule)) rules.insert(finding.rule);
  return rules;
}

std::string message_after(const std::string& rule, const std::function<void(Job&)>& edit) {
  Job job = pipeline();
  edit(job);
  const auto proof = prove_job(job);
  if (proof)
    for (const Finding& finding : proof->findings)
      if (finding.rule == rule) return finding.message;
  return "";
}

TEST(Pipeline, IsProved) {
  const auto proof = prove_job(pipeline());
  ASSERT_TRUE(proof) << proof.error().message();
  for (const Finding& finding : proof->findings)
    EXPECT_EQ(finding.rule, "MF604") << finding.message;  // a wait too many is no fault
  EXPECT_EQ(proof->classes.size(), 2);
}

TEST(Pipeline, HasWhatOneForwardOneBackwardNeeds) {
  EXPECT_TRUE(is_pipelined(pipeline().programs[0]));
  Job job = pipeline();
  EXPECT_EQ(buffer(job, kFirst, "layers.0.qkv").instances, 2);
  EXPECT_EQ(buffer(job, kSecond, "layers.1.qkv").instances, std::nullopt);
  EXPECT_EQ(segment(job, kFirst, "steady").repeat, 2);
  // The first microbatch of a step follows the last but one of the step before.
  const Wait& wait =
      std::get<Wait>(find_op(ops(job, kFirst, "forward"), "output_sent", OpKind::wait)->body);
  EXPECT_TRUE(std::ranges::any_of(wait.bindings, [](const Binding& b) { return b.distance == 2; }));
}

// ---- broken on purpose --------------------------------------------------------------------------

TEST(Pipeline, SendAndRecvApartAndInOneOrderDeadlock) {
  const auto ungroup = [](Job& job) {
    for (const std::size_t stage : {kFirst, kSecond})
      for (Pass& pass : job.programs[stage].plans[0].passes)
        std::erase_if(pass.ops, [](const Op& op) {
          return op.kind() == OpKind::group_begin || op.kind() == OpKind::group_end;
        });
  };
  EXPECT_THAT(rules_after(ungroup), Contains("MF202"));
  EXPECT_THAT(message_after("MF202", ungroup), HasSubstr("d_residual.send"));
}

TEST(Pipeline, AnInstanceTooFewIsFound) {
  EXPECT_THAT(rules_after([](Job& job) { buffer(job, kFirst, "layers.0.qkv").instances.reset(); }),
              Contains("MF106"));
  EXPECT_THAT(
      rules_after([](Job& job) { buffer(job, kFirst, "layers.0.mlp_out").instances.reset(); }),
      Contains("MF101"));
}

TEST(Pipeline, ADistanceOffByOneIsFound) {
  for (const std::int64_t by : {-1, 1})
    EXPECT_THAT(rules_after([&](Job& job) {
                  Op& op = *find_op(ops(job, kFirst, "forward"), "output_sent", OpKind::wait);
                  for (Binding& binding : std::get<Wait>(op.body).bindings)
                    if (binding.distance > 0) binding.distance += by;
                }),
                Contains("MF105"));
}

TEST(Pipeline, AMissingWaitIsARace) {
  EXPECT_THAT(
      rules_after([](Job& job) { drop(job, kSecond, "forward", "input_received", OpKind::wait); }),
      Contains("MF101"));
}

TEST(Pipeline, AReceiveIntoALiveBufferIsARace) {
  const auto into = [](const std::string& name) {
    return [name](Job& job) {
      transfer(job, kSecond, "exchange", "layers.0.mid.recv").output.buffer =
          buffer(job, kSecond, name).id;
    };
  };
  EXPECT_THAT(rules_after(into("d_residual")), Contains("MF101"));  // which is being sent
  EXPECT_THAT(rules_after(into("layers.1.d_product")), Contains("MF102"));
}

TEST(Pipeline, AWrongPeerIsFound) {
  const auto forward = [](Job& job) {
    transfer(job, kSecond, "exchange", "d_residual.send").peer->step = 1;
  };
  EXPECT_THAT(rules_after(forward), Contains("MF206"));
  EXPECT_THAT(
      message_after("MF206", forward),
      HasSubstr("rank 1 sends to or receives from a rank 1 steps along pp, which does not exist"));
}

TEST(Pipeline, ASendWithoutARecvIsFound) {
  EXPECT_THAT(rules_after([](Job& job) { drop(job, kSecond, "exchange", "layers.0.mid.recv"); }),
              Contains("MF201"));
  EXPECT_THAT(rules_after([](Job& job) { segment(job, kSecond, "steady").repeat = 2; }),
              Contains("MF201"));
}

TEST(Pipeline, SendAndRecvAreOfOneSize) {
  EXPECT_THAT(rules_after([](Job& job) {
                Collective& recv = transfer(job, kSecond, "exchange", "layers.0.mid.recv");
                recv.count /= 2;
                recv.output.shape = {recv.count};
              }),
              Contains("MF201"));
  EXPECT_THAT(rules_after([](Job& job) {
                transfer(job, kSecond, "exchange", "layers.0.mid.recv").count /= 2;
              }),
              Contains("MF204"));
}

/// Both tensors have the same size and dtype: only their contents distinguish them.
TEST(Pipeline, TensorsInTheWrongOrderAreFound) {
  const auto swap = [](Job& job) {
    std::vector<Op>& pass = ops(job, kFirst, "exchange_output");
    std::iter_swap(find_op(pass, "layers.0.mid.send"), find_op(pass, "layers.0.mlp_out.send"));
  };
  EXPECT_THAT(rules_after(swap), testing::ElementsAre("MF113"));
  EXPECT_THAT(message_after("MF113", swap), HasSubstr("stage_1"));
}

TEST(Pipeline, BackwardOfTheWrongMicrobatchIsFound) {
  // The results of the microbatch before are released already.
  EXPECT_THAT(rules_after([](Job& job) {
                find_op(ops(job, kFirst, "backward"), "layers.0.qkv.wgrad")->lag = 1;
              }),
              Contains("MF102"));
  EXPECT_THAT(rules_after([](Job& job) {
                find_op(ops(job, kFirst, "backward"), "layers.0.qkv", OpKind::release)->lag = 1;
              }),
              Contains("MF106"));
}

TEST(Pipeline, ACallOfTheWrongMicrobatchIsFound) {
  const auto with_lag = [](const std::string& name, std::size_t call, std::int64_t lag) {
    return rules_after([=](Job& job) { segment(job, kFirst, name).calls[call].lag = lag; });
  };
  EXPECT_THAT(with_lag("steady", 2, 0), Contains("MF106"));
  EXPECT_THAT(with_lag("steady", 2, 2), Contains("MF106"));
  EXPECT_THAT(with_lag("drain", 1, 1), Contains("MF107"));
}

TEST(Pipeline, AMicrobatchLeftOutOfTheGradientIsFound) {
  EXPECT_THAT(rules_after([](Job& job) {
                Segment& drain = segment(job, kFirst, "drain");
                drain.calls.pop_back();
              }),
              Contains("MF301"));
}

TEST(Pipeline, AnUpdateWithoutThisStepsTokensIsFound) {
  EXPECT_THAT(rules_after([](Job& job) {
                drop(job, kSecond, "optimizer", "report.send");
                drop(job, kFirst, "optimizer", "report.recv");
              }),
              Contains("MF307"));
}

TEST(Pipeline, ANormWithoutAUnitIsFound) {
  EXPECT_THAT(
      rules_after([](Job& job) { drop(job, kFirst, "optimizer", "layers.0.norm_partial"); }),
      Contains("MF311"));
}

TEST(Pipeline, LiveBuffersAtABoundaryAreCounted) {
  EXPECT_THAT(rules_after([](Job& job) {
                Segment& warm_up = segment(job, kFirst, "warm_up");
                warm_up.live_out.pop_back();
              }),
              Contains("MF006"));
}

TEST(Pipeline, AClassBySomeOtherPlaceIsRefused) {
  Job job = pipeline();
  job.programs[kSecond].classes[0].at[0].index = 0;
  EXPECT_FALSE(check_structure(job));
}

/// Ranks whose collectives go from window to window have their pools alike, which only ranks of one
/// class are known to have.
TEST(Classes, ThatShareWindowsAreRefused) {
  PlanConfig config = test::small_config(2);
  config.gather = Transport::symmetric;
  const auto whole = build_program(config, {});
  ASSERT_TRUE(whole) << whole.error().message();
  Job job;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    job.programs.push_back(*whole);
    job.programs.back().classes = {{.role = fmt::format("rank {}", rank),
                                    .ranks = 1,
                                    .at = {{.axis = Axis::dp_shard, .index = rank}}}};
  }
  const auto proof = prove_job(job);
  ASSERT_TRUE(proof) << proof.error().message();
  const auto found = std::ranges::find(proof->findings, "MF205", &Finding::rule);
  ASSERT_NE(found, proof->findings.end());
  EXPECT_THAT(found->message, HasSubstr("its ranks are of several classes, whose pools differ"));
  for (Program& program : job.programs)
    for (Communicator& communicator : program.communicators)
      communicator.transport = Transport::nccl;
  const auto without = prove_job(job);
  ASSERT_TRUE(without) << without.error().message();
  for (const Finding& finding : without->findings)
    EXPECT_THAT(finding.message, Not(HasSubstr("several classes")));
}

}  // namespace
}  // namespace mfsdp
