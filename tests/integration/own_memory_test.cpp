// scenarios/fidelity/own_memory.csv states what mfsdp-sim predicts today.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/plan/engine.hpp"
#include "sim/calibrate/table_cells.hpp"
#include "tests/support/run_tool.hpp"

namespace mfsdp {
namespace {

/// "fsdp2 --modules torchtitan --fsdp-unit block;ends" or "ddp no_sync=true" as flags.
std::string engine_flags(const std::string& text) {
  std::istringstream words(text);
  std::string flags = "--engine";
  std::string word;
  for (bool is_name = true; words >> word; is_name = false) {
    std::ranges::replace(word, ';', ',');
    if (!is_name && word.find('=') != std::string::npos) flags += " --engine-option";
    flags += " " + (is_name ? std::string(shown_engine(word)) : word);
  }
  return flags;
}

/// The flags of a row, but for a model that was cut or changed.
std::string flags_of(const CsvTable& table, std::size_t row) {
  const auto cell = [&](const char* column) { return text_cell(table, row, column).value(); };
  const auto number = [&](const char* column) { return integer_cell(table, row, column).value(); };
  return fmt::format(
      "{} --model {} --gpu {} --gpus {} --seq-len {} --micro-batch {} --global-batch {} {} "
      "--no-save --output json",
      engine_flags(cell("engine")), cell("model"), cell("gpu"), number("gpus"), number("sequence"),
      number("micro_batch"), number("gpus") * number("micro_batch") * number("microbatches"),
      cell("flags"));
}

/// A tenth of the rows, as each costs a tenth of a second.
TEST(OwnMemory, PredictionsAreThoseOfToday) {
  const auto table =
      read_table(std::string(MFSDP_SOURCE_DIR) + "/scenarios/fidelity/own_memory.csv");
  ASSERT_TRUE(table) << table.error().message();
  std::size_t seen = 0;
  for (std::size_t row = 3; row < table->rows(); row += 11) {
    if (!text_cell(*table, row, "layers")->empty() ||
        text_cell(*table, row, "flags")->find("(untied)") != std::string::npos)
      continue;
    const std::string flags = flags_of(*table, row);
    const test::ToolRun run = test::run_sim(flags);
    ASSERT_EQ(run.status, 0) << flags;
    const auto memory = nlohmann::json::parse(run.out)["memory"];
    EXPECT_EQ(memory["allocated_bytes"].get<std::int64_t>(),
              integer_cell(*table, row, "predicted_allocated"))
        << flags;
    if (!text_cell(*table, row, "reserved")->empty()) {
      EXPECT_EQ(memory["reserved_bytes"].get<std::int64_t>(),
                integer_cell(*table, row, "predicted_reserved"))
          << flags;
    }
    ++seen;
  }
  EXPECT_GE(seen, 9U);
}

}  // namespace
}  // namespace mfsdp
