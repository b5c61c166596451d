#include "sim/tool/sim_options.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

std::string sim_error_of(const std::vector<std::string>& args) {
  const auto options = parse_sim_options(args);
  return options ? "no error" : options.error().message();
}

TEST(SimOptions, TokensInWords) {
  const auto tokens = [](const char* text) {
    return parse_sim_options({"--model", "x", "--tokens", text})->tokens;
  };
  EXPECT_EQ(tokens("15T"), 15'000'000'000'000);
  EXPECT_EQ(tokens("1e12"), 1'000'000'000'000);
  EXPECT_EQ(sim_error_of({"--model", "x", "--tokens", "0"}),
            "--tokens: '0' is not a number of tokens such as 15T, 300B, 1e12 or 1000000000");
}

TEST(SimOptions, TheLastPriceOfAGpuCounts) {
  const auto priced = parse_sim_options(
      {"--model", "x", "--tokens", "1T", "--price", "h100=2", "--price", "h100=3"});
  ASSERT_TRUE(priced);
  ASSERT_EQ(priced->prices.size(), 1u);
  EXPECT_EQ(priced->prices[0].price, (Rational{3, 1}));
}

TEST(SimOptions, Contradictions) {
  EXPECT_EQ(sim_error_of({"--model", "x", "--explain", "memory", "--output", "csv"}),
            "--explain: contradicts --output csv; explanations are text");
  EXPECT_EQ(sim_error_of({"--plan", "p.json", "--model", "x"}),
            "--model: contradicts --plan, whose file decides it");
  EXPECT_EQ(sim_error_of({}),
            "--model: is missing: name a model (--list-models), a config.json or a --plan");
  EXPECT_EQ(sim_error_of({"--list-models"}), "no error");
  EXPECT_EQ(sim_error_of({"--help"}), "no error");
}

}  // namespace
}  // namespace mfsdp
