#include "reports/render/explain.hpp"

#include <gmock/gmock.h>

#include "tests/reports/render/sample_run.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

TEST(Explain, MemoryShowsPoolsAgainstTheirLowerBounds) {
  const std::string text = explain_memory(sample_run());
  // 1100 / 1000 - 1 = 10 %; runtime = 56 GiB - 1100 MiB = 54.93 GiB; 56 / 55 - 1 = 1.8 %.
  EXPECT_THAT(text, HasSubstr("weights   1.07 GiB  1,000.00 MiB    10.0 %\n"));
  EXPECT_THAT(text, HasSubstr("empty          0 B           0 B         -\n"));
  EXPECT_THAT(text, HasSubstr("runtime  54.93 GiB     54.93 GiB         -\n"));
  EXPECT_THAT(text, HasSubstr("all      56.00 GiB     55.00 GiB     1.8 %\n"));
  EXPECT_THAT(text, HasSubstr("measured on H200"));
}

Group group_of(std::size_t unit, std::int64_t rows) {
  return {.id = GroupId(unit),
          .unit = UnitId(unit),
          .dtype = DType::bf16,
          .requires_grad = true,
          .chunk = 4,
          .elements = 64,
          .cut = {Axis::dp_shard},
          .reduce = {Axis::dp_shard},
          .weight = {},
          .gradient = {},
          .state = {},
          .parameters = {{.name = "w",
                          .role = ParameterRole::embedding,
                          .shape = {rows, 4},
                          .offset = 0,
                          .decay = true}}};
}

TEST(Explain, LayoutGroupsEqualRowsAndCountsEmptyRanks) {
  Program program;
  program.config.mesh = data_parallel_mesh(1, 4);  // shards of 64 / 4 = 16 elements
  for (std::size_t i = 0; i < 3; ++i)
    program.units.push_back({.id = UnitId(i), .name = "layers." + std::to_string(i)});
  // 5 rows of 4: 20 elements reach into shards 0 and 1; 16 rows fill all four.
  program.groups = {group_of(0, 5), group_of(1, 5), group_of(2, 16)};
  const std::string text = explain_layout(program);
  EXPECT_THAT(text, testing::MatchesRegex(
                        ".*layers.0 .. layers.1 +2 +bf16 +trained +1 +64 +44 +4 +128 B +32 B +2\n"
                        "layers.2 +1 +bf16 +trained +1 +64 +0 +4 +128 B +32 B +0\n.*"));
}

}  // namespace
}  // namespace mfsdp
