#include "verify/mutation/render_mutation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

/// Two kernels that read; the second mutant has no certificate.
struct Sample {
  Program program;
  MutationReport report;

  Sample() {
    test::PlanBuilder b;
    const BufferId kept = b.buffer("kept", true);
    b.kernel(b.compute, "first|one", {kept}, {});
    b.kernel(b.compute, "second", {kept}, {});
    program = b.finish();
    report.mutants = 40;
    report.total = {.killed = 3, .correct = 1, .uncertified = 1};
    report.by_kind[MutantKind::swap_on_stream] = {.killed = 0, .correct = 1, .uncertified = 1};
    report.by_kind[MutantKind::drop_kernel] = {.killed = 3, .correct = 0, .uncertified = 0};
    report.by_rule["MF101"] = 3;
    report.verdicts = {{.mutant = {.kind = MutantKind::swap_on_stream},
                        .fate = Fate::correct,
                        .rules = {},
                        .refusal = {}},
                       {.mutant = {.kind = MutantKind::drop_kernel, .index = 1},
                        .fate = Fate::uncertified,
                        .rules = {},
                        .refusal = "certificate: no"}};
  }
};

TEST(RenderMutation, Text) {
  const Sample sample;
  const std::string text = render_mutation_text(sample.program, sample.report);
  EXPECT_THAT(text, HasSubstr("40 mutants, 5 judged: 3 killed, 1 correct, 1 uncertified\n"));
  EXPECT_THAT(text, HasSubstr("drop_kernel                  3        0            0\n"));
  EXPECT_THAT(text, HasSubstr("MF101 race                          3\n"));
  EXPECT_THAT(text, HasSubstr("  swap_on_stream: train/only op 0 kernel first|one (compute)\n"));
  EXPECT_THAT(text, HasSubstr("op 1 kernel second (compute); uncertified: certificate: no\n"));
}

TEST(RenderMutation, SaysHowManyChangeNothing) {
  Sample sample;
  sample.report.unchanged = 7;
  EXPECT_THAT(render_mutation_text(sample.program, sample.report),
              HasSubstr("1 uncertified; 7 more were drawn and change nothing\n"));
}

TEST(RenderMutation, MarkdownKeepsItsColumns) {
  const Sample sample;
  const std::string text = render_mutation_markdown(sample.program, sample.report);
  EXPECT_THAT(text, HasSubstr("| drop_kernel | 3 | 0 | 0 |\n"));
  EXPECT_THAT(text, HasSubstr("kernel first\\|one (compute) | correct |\n"));
  EXPECT_THAT(text, HasSubstr("| uncertified: certificate: no |\n"));
}

TEST(RenderMutation, JsonHasTheSame) {
  const Sample sample;
  const auto json = nlohmann::json::parse(render_mutation_json(sample.program, sample.report));
  EXPECT_EQ(json["mutants"], 40);
  EXPECT_EQ(json["judged"], 5);
  EXPECT_EQ(json["kinds"].size(), 2);
  EXPECT_EQ(json["rules"][0]["rule"], "MF101");
  EXPECT_EQ(json["verdicts"][1]["fate"], "uncertified");
}

}  // namespace
}  // namespace mfsdp
