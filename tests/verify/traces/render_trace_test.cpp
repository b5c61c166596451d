#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/kineto_text.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {
namespace {

using test::KinetoText;
using test::kMicro;
using ::testing::HasSubstr;
using ::testing::Not;

TraceReport report_of(const std::string& where, int gather) {
  std::string text;
  KinetoText t([&](std::string_view part) { text += part; }, 3, 8);
  t.activity({.name = "nvjet_gemm", .begin = 0, .duration = 100 * kMicro});
  t.host("cuda_runtime", "cudaLaunchKernelExC", 60 * kMicro, kMicro, 9);
  t.collective({.name = "ncclDevKernel_AllGather_RING_LL",
                .begin = 80 * kMicro,
                .duration = gather * kMicro,
                .stream = 20,
                .correlation = 9},
               {});
  t.activity({.name = "nvjet_gemm", .begin = (80 + gather) * kMicro, .duration = 100 * kMicro});
  t.step(7, 0, (180 + gather) * kMicro, true);
  t.finish();
  return analyse_trace(*parse_kineto(text, where)).value();
}

TEST(RenderTrace, TextShowsTheWholeReport) {
  const std::string text = render_trace_text(std::vector{report_of("a.json", 100)});
  EXPECT_TRUE(text.starts_with("a.json, rank 3 of 8, device 0\n")) << text;
  EXPECT_THAT(text, HasSubstr("7       0.280    0.200         0.080   0.000  0.000"));
  EXPECT_THAT(text, HasSubstr("all_gather  0          8  BFloat16      1  0.0  0.100       0.080"));
  EXPECT_THAT(text, HasSubstr("too late to hide: 1, 0.080 ms could have hidden"));
  EXPECT_THAT(text, HasSubstr("Limits of a.json\n- "));
  EXPECT_THAT(text, Not(HasSubstr("Ranks")));
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(RenderTrace, RanksStandSideBySide) {
  const std::vector reports{report_of("a.json", 100), report_of("b\n.json", 50)};
  const std::string text = render_trace_text(reports);
  EXPECT_THAT(text, HasSubstr("\nRanks\n"));
  EXPECT_THAT(text, HasSubstr("\nLimits of these traces\n"));  // the same of both
  EXPECT_THAT(text, HasSubstr("b\\n.json, rank 3 of 8, device 0    0.230"));
}

/// Four collectives, all launched by 3 us, run one after another from 10 us on, 10 us each.
TEST(RenderTrace, ReductionsInFlightAreNamedAndCounted) {
  const auto text_of = [](const std::string& last) {
    std::string text;
    KinetoText t([&](std::string_view part) { text += part; }, 3, 8);
    for (int i = 0; i < 4; ++i) {
      t.host("cuda_runtime", "cudaLaunchKernelExC", i * kMicro, 100, i + 1);
      t.collective({.name = i == 3 ? last : "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
                    .begin = (10 + 10 * i) * kMicro,
                    .duration = 10 * kMicro,
                    .stream = 24,
                    .correlation = i + 1},
                   {});
    }
    t.finish();
    return render_trace_text(std::vector{analyse_trace(*parse_kineto(text, "a.json")).value()});
  };
  EXPECT_THAT(text_of("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"),
              HasSubstr("Reduce-scatters in flight: 1 running, up to 4 queued\n"));
  EXPECT_THAT(text_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
              HasSubstr("Reductions in flight: 1 running, up to 4 queued\n"));
}

TEST(RenderTrace, MarkdownHasTables) {
  const std::string text = render_trace_markdown(std::vector{report_of("a.json", 100)});
  EXPECT_TRUE(text.starts_with("### a.json, rank 3 of 8, device 0\n\n| ")) << text;
  EXPECT_THAT(text, HasSubstr("| 7 | 0.280 | 0.200 | 0.080 | 0.000 | 0.000 |"));
}

TEST(RenderTrace, JsonHasNanoseconds) {
  const auto json = nlohmann::json::parse(render_trace_json(std::vector{report_of("a.json", 100)}));
  const auto& device = json.at("traces").at(0).at("devices").at(0);
  EXPECT_EQ(device.at("time").at("exposed_ns"), 80'000);
  EXPECT_EQ(device.at("steps").at(0).at("step"), 7);
  EXPECT_EQ(device.at("collectives").at(0).at("op"), "all_gather");
  EXPECT_EQ(device.at("late_gathers").at("worst").at(0).at("free_before_launch_ns"), 60'000);
  EXPECT_EQ(json.at("traces").at(0).at("rank"), 3);
  EXPECT_FALSE(json.at("traces").at(0).at("cannot_show").empty());
}

}  // namespace
}  // namespace mfsdp::traces
