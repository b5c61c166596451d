// docs/reference/formats.md names every key of what the tools answer with --output json, but for
// results.
#include "tests/support/documented.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/run_tool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;

/// All keys but those of results, and of objects whose keys are names of other things.
void add_keys(const json& node, std::set<std::string>& keys) {
  if (node.is_array())
    for (const json& item : node) add_keys(item, keys);
  if (!node.is_object() || node.value("schema", "") == "mfsdp.result/1") return;
  for (const auto& [key, value] : node.items()) {
    keys.insert(key);
    if (key != "axes" && key != "figures") add_keys(value, keys);
  }
}

void expect_documented(const test::ToolRun& run, const std::string& schema,
                       const std::set<std::string>& also = {}) {
  static const std::set<std::string> kNamed = [] {
    std::set<std::string> named = test::documented("reference/formats.md", "Answers");
    for (const char* section : {"Result", "Plan"})
      named.merge(test::documented("reference/formats.md", section));
    return named;
  }();
  const json answer = json::parse(run.out);
  EXPECT_EQ(answer["schema"], schema);
  EXPECT_TRUE(kNamed.contains(schema)) << schema;
  std::set<std::string> keys;
  add_keys(answer, keys);
  for (const std::string& key : keys)
    EXPECT_TRUE(also.contains(key) || kNamed.contains(key) || kNamed.contains(key + "[]"))
        << key << " of " << schema << " has no place in the table of answers";
}

TEST(DocumentedAnswers, OfTheSimulator) {
  const auto sim = [](const std::string& flags) {
    return test::run_sim("--model llama_nano --no-save --output json " + flags);
  };
  expect_documented(sim("--gpus 4 --micro-batch 1,2"), "mfsdp.sweep/1");
  expect_documented(sim("--gpus 4 --find fastest"), "mfsdp.find/1",
                    {"strategy", "recompute", "placement", "gather", "reduce", "micro-batch"});
  expect_documented(sim("--find min-gpus"), "mfsdp.limit/1");
  expect_documented(sim("--gpu h100,h200 --find min-gpus"), "mfsdp.limits/1");
  expect_documented(test::run_sim("--fidelity --output json"), "mfsdp.fidelity/1");
}

TEST(DocumentedAnswers, OfTheVerifier) {
  expect_documented(test::run_verify("--model llama_nano --gpus 2 --output json"),
                    "mfsdp.findings/1");
}

TEST(DocumentedAnswers, OfReports) {
  const test::ScratchFolder folder;
  const std::string store = fmt::format(" --db '{}' --output json", (folder / "s").string());
  for (const char* batch : {"1", "2"})
    ASSERT_EQ(
        test::run_sim(fmt::format("--model llama_nano --gpus 2 --micro-batch {}{}", batch, store))
            .status,
        0);
  const std::string limits = (folder / "limits.toml").string();
  test::write_file(limits, "[time]\nmedian_step_ns = 1\n");
  expect_documented(test::run_report("list" + store), "mfsdp.runs/1");
  expect_documented(test::run_report("compare 1 2" + store), "mfsdp.compare/1");
  expect_documented(test::run_report("history" + store), "mfsdp.history/1");
  expect_documented(
      test::run_report(fmt::format("check 2 --budget '{}'{} 2>/dev/null", limits, store)),
      "mfsdp.check/1");
}

}  // namespace
}  // namespace mfsdp
