#include "reports/trace/step_picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/formats/xml.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string drawn(const RunResult& run, const Program* program = nullptr) {
  const test::ScratchFolder folder;
  const auto written = write_trace(run, folder / "step.svg", program);
  EXPECT_TRUE(written) << written.error().message();
  return test::read_file(folder / "step.svg");
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(StepPicture, HasABoxForEachOpAndTheMemoryThatChanges) {
  const auto predicted = test::predicted([](PlanConfig& /*config*/) {});
  const std::string svg = drawn(predicted.run(), &predicted.program);
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(svg, HasSubstr(">One training step of llama_nano on 8 h200, simulated: "));
  EXPECT_THAT(svg, HasSubstr("<title>layers.1.all_gather, "));
  EXPECT_THAT(svg, HasSubstr(">reduce_scatter</text>"));  // a stream
  EXPECT_THAT(svg, HasSubstr(">layers.2</text>"));        // a unit
  EXPECT_THAT(svg, HasSubstr(">activation</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">optimizer_state</text>")));  // constant
  // The step begins while two ops of it are done already: tokens come with the step before.
  std::size_t in_step = 0;
  for (const OpTime& op : predicted.run().timeline) in_step += op.end > Nanos(0) ? 1 : 0;
  EXPECT_EQ(count(svg, "</title></rect>"), in_step);
}

TEST(StepPicture, OfALongStepIsSmall) {
  PredictedRun run = test::sample_run("r", 20'000);
  run.time.step = run.timeline.back().end;
  const std::string svg = drawn(run);
  EXPECT_GT(count(svg, "</title></rect>"), 1'000U);  // two streams of 822 pixels, two boxes a pixel
  EXPECT_LT(count(svg, "</title></rect>"), 3'300U);
}

TEST(StepPicture, NamesAreText) {
  PredictedRun run = test::sample_run();
  run.model_name = "<script>&\"";
  EXPECT_THAT(drawn(run), HasSubstr("of &lt;script&gt;&amp;&quot; on"));
  EXPECT_EQ(xml_text("a\n\xff"), "a\\n?");
}

TEST(StepPicture, OtherNamesGiveAChromeTrace) {
  const test::ScratchFolder folder;
  ASSERT_TRUE(write_trace(test::sample_run(), folder / "step.json"));
  EXPECT_THAT(test::read_file(folder / "step.json"), StartsWith("{\"displayTimeUnit\""));
}

}  // namespace
}  // namespace mfsdp
