// Compares the tools' present results with those in tests/integration/recorded: predictions and
// proofs of 2,000 configurations, and two steps of training of 24.
//
//   MFSDP_UPDATE_RECORDED=1   writes the results anew, of the configurations that stand there
//   MFSDP_RECORDED=full       compares every line under sanitizers too
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "core/schedule/build.hpp"
#include "sim/predict/predict.hpp"
#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/recorded_draw.hpp"
#include "tests/support/recorded_lines.hpp"
#include "tests/support/samples.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

using test::cell;
using test::Cells;
using test::Digest;
using test::Draw;
using test::kRecorded;
using test::RecordedModels;

constexpr std::uint64_t kSeed = 20261122;
/// Tests of the predictions; each compares every so-many-th line.
constexpr int kParts = 8;

bool compares_all() {
  const char* asked = std::getenv("MFSDP_RECORDED");
  return asked != nullptr && std::string_view(asked) == "full";
}

/// For `gpus` H100: a whole number of nodes for every world size, of the most GPUs up to 8.
CostModel costs_of(std::int64_t gpus) {
  static const Gpu gpu = load_gpu("h100", test::kGpus).value();
  std::int64_t per_node = std::min<std::int64_t>(gpus, 8);
  while (gpus % per_node != 0) --per_node;
  return make_cost_model(make_cluster(gpu, gpus, per_node).value()).value();
}

template <class... Numbers>
std::string digest_of(Numbers... numbers) {
  Digest digest;
  (digest.add(numbers), ...);
  return digest.text();
}

/// Heights of all pools, largest first.
std::string heights_digest(const Program& program) {
  std::vector<std::int64_t> heights;
  for (const Pool& pool : program.pools) heights.push_back(pool.height.value);
  std::ranges::sort(heights, std::greater());
  Digest digest;
  for (const std::int64_t height : heights) digest.add(height);
  return digest.text();
}

/// Prediction and proof. Names, ids and the hash of the plan are no part of it.
Result<Cells> predicted_cells(const PlanConfig& config) {
  MFSDP_LET(program, build_program(config, {}));
  MFSDP_LET(prediction, predict(program, costs_of(config.mesh.world_size())));
  MFSDP_LET(proof, prove(program));
  const auto& [time, traffic] = std::tie(prediction.run.time, prediction.run.traffic);
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  return Cells{{"allocated", text(prediction.run.memory.allocated.value)},
               {"peak", text(prediction.run.memory.peak.value)},
               {"pools", heights_digest(program)},
               {"step_ns", text(time.step.value)},
               {"times", digest_of(time.compute.value, time.communication.value,
                                   time.exposed_communication.value, time.idle.value,
                                   time.contention.value)},
               {"traffic", digest_of(traffic.all_gather.value, traffic.reduce_scatter.value,
                                     traffic.all_reduce.value)},
               {"ops", text(prediction.run.plan.ops)},
               {"findings", text(std::ssize(proof.findings))},
               {"full_weights", text(proof.bounds.live_full_weights)},
               {"full_grads", text(proof.bounds.live_full_gradients)}};
}

/// Digest of all elements of each parameter, by name.
std::string digest_of(const test::Weights& weights) {
  Digest digest;
  for (const auto& [name, values] : weights) {
    digest.add_text(name);
    for (const float value : values) digest.add(std::bit_cast<std::uint32_t>(value));
  }
  return digest.text();
}

/// Two steps of training on the CPU.
Result<Cells> trained_cells(const PlanConfig& config) {
  MFSDP_TRY(build_program(config, {}));
  test::Counting data;
  data.vocab = config.model.vocab;
  const test::Told told = test::train(config, 2, data);
  MFSDP_TRY(told.end);
  Cells cells;
  for (const StepReport& step : told.steps) {
    if (!std::isfinite(step.loss) || !std::isfinite(step.grad_norm))
      return fail("loss", "not finite");
    const auto bits = [](double value) {
      return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value));
    };
    cells.emplace_back("loss" + std::to_string(step.step), bits(step.loss));
    cells.emplace_back("norm" + std::to_string(step.step), bits(step.grad_norm));
  }
  cells.emplace_back("main_weights", digest_of(told.weights));
  cells.emplace_back("weights", digest_of(told.computed));
  return cells;
}

using Compute = std::function<Result<Cells>(const PlanConfig&)>;

Cells joined(Cells cells, const Cells& more) {
  cells.insert(cells.end(), more.begin(), more.end());
  return cells;
}

/// Configurations that can be computed, from `draw`, with their results.
std::vector<Cells> drawn_lines(std::size_t count, const Compute& compute,
                               const std::function<std::pair<std::string, PlanConfig>()>& draw) {
  std::vector<Cells> lines;
  while (lines.size() < count) {
    const auto [model, config] = draw();
    if (const auto results = compute(config))
      lines.push_back(joined(test::cells_of(model, config), *results));
  }
  return lines;
}

std::vector<Cells> recomputed(const std::vector<Cells>& lines, const Compute& compute) {
  RecordedModels models;
  std::vector<Cells> anew;
  for (const Cells& line : lines)
    anew.push_back(
        joined(test::configuration_cells(line), compute(test::config_of(line, models)).value()));
  return anew;
}

/// Writes the results of a file anew, or draws its configurations where there is none.
void update(const std::string& file, const Compute& compute,
            const std::function<std::vector<Cells>()>& draw) {
  const auto path = kRecorded / file;
  test::write_cells(
      path, std::filesystem::exists(path) ? recomputed(test::read_cells(path), compute) : draw());
}

/// Compares every `every`-th line, from `first` on.
void compare(const std::string& file, const Compute& compute, std::size_t first,
             std::size_t every) {
  RecordedModels models;
  const std::vector<Cells> lines = test::read_cells(kRecorded / file);
  ASSERT_GT(lines.size(), first);
  for (std::size_t i = first; i < lines.size(); i += every) {
    const auto computed = compute(test::config_of(lines[i], models));
    const std::string where = fmt::format("{}:{}: ", file, i + 2);
    ASSERT_TRUE(computed) << where << computed.error().message();
    EXPECT_EQ(test::first_difference(lines[i], *computed), "") << where;
  }
}

// --- Drawing ----------------------------------------------------------------------------------

constexpr std::size_t kPredictions = 2000;
constexpr std::size_t kTrainings = 24;
constexpr std::int64_t kShapes = 64;

std::string drawn_name(std::int64_t number) { return fmt::format("m{}", number); }

void draw_models() {
  Draw draw(kSeed);
  std::vector<Cells> models;
  for (std::int64_t i = 0; i < kShapes; ++i)
    models.push_back(test::draw_model(draw, drawn_name(i)));
  test::write_cells(kRecorded / "models.csv", models);
}

/// One in eight of a model that comes with the tools.
std::vector<Cells> draw_predictions() {
  draw_models();
  RecordedModels models;
  Draw draw(kSeed + 1);
  return drawn_lines(kPredictions, predicted_cells, [&] {
    const bool built_in = draw.one_in(8);
    const std::string model =
        built_in ? draw.one_of<std::string>({"llama_nano", "llama_tiny", "qwen3_0.6b",
                                             "qwen2.5_0.5b", "llama3_1b", "llama2_7b", "llama3_8b",
                                             "mistral_7b", "qwen2.5_7b", "qwen2.5_72b"})
                 : drawn_name(draw.pick(0, kShapes - 1));
    return std::pair(model, test::draw_config(draw, models[model], 512, built_in ? 128 : 20));
  });
}

std::vector<Cells> draw_trainings() {
  RecordedModels models;
  Draw draw(kSeed + 2);
  return drawn_lines(kTrainings, trained_cells, [&] {
    const std::string model = draw.one_in(6) ? "llama_nano" : drawn_name(draw.pick(0, kShapes - 1));
    return std::pair(model, test::draw_config(draw, models[model], 6, 12));
  });
}

// --- Tests ------------------------------------------------------------------------------------

class RecordedPredictions : public testing::TestWithParam<int> {};

TEST_P(RecordedPredictions, AreWhatTheToolsComputeNow) {
  const auto part = static_cast<std::size_t>(GetParam());
  if (test::updates_recorded()) {
    if (part == 0) update("predictions.csv", predicted_cells, draw_predictions);
    return;
  }
  const std::size_t every = test::kOneCase && !compares_all() ? 100 : 1;
  compare("predictions.csv", predicted_cells, part, kParts * every);
}

INSTANTIATE_TEST_SUITE_P(Part, RecordedPredictions, testing::Range(0, kParts));

TEST(RecordedTrainings, AreWhatTheToolsComputeNow) {
  if (test::updates_recorded()) return update("trainings.csv", trained_cells, draw_trainings);
  compare("trainings.csv", trained_cells, 0, test::kOneCase && !compares_all() ? 24 : 1);
}

TEST(RecordedLines, HoldWholeConfigurations) {
  RecordedModels models;
  const std::vector<Cells> lines = test::read_cells(kRecorded / "predictions.csv");
  EXPECT_EQ(lines.size(), kPredictions);
  for (const Cells& line : lines) {
    const PlanConfig config = test::config_of(line, models);
    EXPECT_EQ(test::cells_of(cell(line, "model"), config), test::configuration_cells(line));
  }
}

TEST(RecordedLines, NameTheFirstColumnThatDiffers) {
  const Cells recorded{{"model", "m0"}, {"peak", "12"}, {"step_ns", "5"}};
  EXPECT_EQ(test::first_difference(recorded, {{"peak", "12"}, {"step_ns", "5"}}), "");
  EXPECT_EQ(test::first_difference(recorded, {{"peak", "13"}, {"step_ns", "6"}}),
            "peak: recorded 12, now 13");
}

}  // namespace
}  // namespace mfsdp
