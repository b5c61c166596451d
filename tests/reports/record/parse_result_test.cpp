#include "reports/record/parse_result.hpp"

#include <gtest/gtest.h>

#include "reports/record/result_json.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

TEST(ParseResults, OneObjectASweepOrLines) {
  const RunResult run(test::sample_run());
  const std::string line = to_json_line(run);
  const auto count = [](const std::string& text) {
    const auto runs = parse_results(text, "out");
    return runs ? runs->size() : 0;
  };
  EXPECT_EQ(count(to_json(run)), 1U);
  EXPECT_EQ(count(R"({"schema": "mfsdp.sweep/1", "results": [)" + line + "," + line + "]}"), 2U);
  EXPECT_EQ(count(line + "\n" + line + "\n"), 2U);
  EXPECT_EQ(count("starting\n{\"event\": \"step\"}\n" + line), 1U);
  EXPECT_EQ(parse_results("step 1\n", "out").error().message(),
            "out: holds no result: expected what --output json or jsonl prints");
  EXPECT_FALSE(parse_results("", "out"));
}

}  // namespace
}  // namespace mfsdp
