// A sample of scripts/mutate-fields on pipelines: no change of a field is wrong and clean.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/pipeline.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"
#include "verify/mutation/mutate_fields.hpp"
#include "verify/mutation/render_field_mutation.hpp"
#include "verify/oracle/run_bits.hpp"

namespace mfsdp {
namespace {

class JobMutants : public testing::TestWithParam<const char*> {};

TEST_P(JobMutants, AreRefusedFoundOrHarmless) {
  const test::ScratchFolder folder;
  const RunBitsSettings runs{.folder = folder.path()};
  FieldMutationSettings settings;
  settings.machines = {.once = [&](const Job& job) { return plain_run_bits(job, runs); },
                       .shaken = [&](const Job& job) { return shaken_run_bits(job, runs); }};
  settings.per_field = 4;
  settings.most = test::cases(12);
  settings.seed = 5;
  const auto report = mutate_fields(test::pipeline(GetParam()), settings);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->judged(), test::cases(12));
  EXPECT_EQ(report->defects(), 0) << render_field_mutation_text(*report);
}

INSTANTIATE_TEST_SUITE_P(All, JobMutants,
                         testing::Values("1f1b_2x4.json", "1f1b_2x4_dp2.json", "1f1b_4x8.json",
                                         "interleaved_2x2x4.json", "zero_bubble_2x4.json"));

/// The whole run found this: the norm reads none of the parts that were received.
TEST(JobMutant, ANormOfNoPartsIsFound) {
  Job job = test::pipeline();
  for (Op& op : job.programs[1].plans[0].segments.back().ops)
    if (auto* kernel = std::get_if<Kernel>(&op.body);
        kernel != nullptr && kernel->kind == KernelKind::norm_finish)
      for (Operand& operand : kernel->operands)
        if (operand.role == "input") operand.shape = {0};
  const FieldVerdict verdict =
      judge_altered(to_canonical_json(job), {}, {}, {}, [](std::string_view) {});
  EXPECT_EQ(verdict.rules, std::vector<std::string>{"MF311"});
}

}  // namespace
}  // namespace mfsdp
