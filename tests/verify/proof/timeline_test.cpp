#include "verify/findings/timeline.hpp"

#include <gtest/gtest.h>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

TEST(Timeline, RaceOfTwoStreams) {
  test::PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  plan.kernel(plan.gather, "write", {}, {a});
  plan.record(plan.h2d, "start");
  plan.wait(plan.compute, "start");
  plan.kernel(plan.compute, "read", {a}, {});
  const Finding finding = test::finding_of(plan.finish(), "MF101");
  EXPECT_EQ(to_text(finding),
            "MF101 race: nothing orders write (all_gather) and read (compute), which both touch "
            "bytes [0, 256) of buffer 'a' (pool 'device')\n"
            "  missing: write (all_gather) -> read (compute)\n"
            "\n"
            "  h2d         1   .   .   .\n"
            "  compute     .   2   3*  .\n"
            "  all_gather  .   .   .   4*\n"
            "\n"
            "  1  record start  h2d         train, step 1, only, op 1\n"
            "  2  wait start    compute     train, step 1, only, op 2\n"
            "  3  read          compute     train, step 1, only, op 3\n"
            "  4  write         all_gather  train, step 1, only, op 0\n");
}

TEST(Timeline, NothingToDraw) {
  EXPECT_EQ(draw_timeline({}), "");
  Finding finding;
  finding.rule = "MF001";
  finding.message = "ops[3]: there is no buffer with id 7";
  EXPECT_EQ(to_text(finding), "MF001 unknown-id: ops[3]: there is no buffer with id 7\n");
}

}  // namespace
}  // namespace mfsdp
