// Runs that are saved, killed and resumed, on the CPU: their bits are those of uninterrupted runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "core/model/hf_config.hpp"
#include "core/plan/fp8.hpp"
#include "gpu_backend/checkpoint/agreement.hpp"
#include "gpu_backend/checkpoint/saved_state.hpp"
#include "gpu_backend/checkpoint/saver.hpp"
#include "tests/gpu_backend/checkpoint/ranks_at_rest.hpp"
#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::Counting;
using test::nano;
using test::ScratchFolder;
using test::Told;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kSteps = 6;

/// Trains to `steps` of kSteps with saves.
Told train_saving(const PlanConfig& config, const SaveSettings& saves, std::int64_t steps = kSteps,
                  const std::filesystem::path& from = {}) {
  std::optional<SavedState> state;
  if (!from.empty()) {
    auto opened = SavedState::open(from);
    if (!opened) {
      Told told;
      told.end = tl::unexpected<Error>(opened.error());
      return told;
    }
    state.emplace(std::move(*opened));
  }
  Saver saver(saves, test::identity(config), state ? state->manifest().position : TrainPosition{});
  // Those who are asked about turn t go on while t < left.
  const std::int64_t left = steps - (state ? state->manifest().position.step : 0);
  std::atomic<std::int64_t> turns = 0;
  SharedStopPoint stop([&] { return turns++ == left; });
  return test::train(config, kSteps, Counting(), {.inputs = [&](TrainInputs& inputs) {
                       inputs.stop = &stop;
                       inputs.keeper = saves.folder.empty() ? nullptr : &saver;
                       if (!state) return;
                       inputs.start = state->manifest().position;
                       inputs.source = &*state;
                     }});
}

/// Checks that `told` is the end of `whole`, from step `first` on. A loss is a sum of floats in the
/// order of the layout, also with exact sums. Losses are equal if the batches are `same_batches`;
/// otherwise they differ by at most the rounding of their additions.
void expect_same(const Told& told, const Told& whole, std::size_t first, bool same_batches = true,
                 std::int64_t sequences = 4) {
  ASSERT_TRUE(told.end) << told.end.error().message();
  ASSERT_EQ(told.steps.size() + first - 1, whole.steps.size());
  for (std::size_t i = 0; i < told.steps.size(); ++i) {
    const StepReport& report = told.steps[i];
    const StepReport& expected = whole.steps[i + first - 1];
    EXPECT_EQ(report.step, expected.step);
    if (same_batches)
      EXPECT_EQ(report.loss, expected.loss) << "step " << report.step;
    else
      EXPECT_NEAR(report.loss, expected.loss,
                  static_cast<double>(sequences) * 0x1p-24 * expected.loss)
          << report.step;
    EXPECT_TRUE(report.grad_norm == expected.grad_norm ||
                (std::isnan(report.grad_norm) && std::isnan(expected.grad_norm)))
        << report.grad_norm << " and " << expected.grad_norm;
    EXPECT_EQ(report.learning_rate, expected.learning_rate);
    EXPECT_EQ(report.seen_tokens, expected.seen_tokens);
  }
  EXPECT_EQ(told.weights, whole.weights);
  EXPECT_EQ(told.computed, whole.computed);
  EXPECT_TRUE(told.torn.empty());
}

PlanConfig layout(std::int64_t outer, std::int64_t shard, Strategy strategy) {
  PlanConfig config = nano(shard, strategy);
  config.mesh.resize(Axis::dp_outer, outer);
  return config;
}

/// Each layout saves midway and the next one resumes; the result is that of an uninterrupted run.
void expect_moves(const std::vector<PlanConfig>& layouts) {
  const Told whole = train_saving(layouts.front(), {});
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(fmt::format("layout {}", i));
    const ScratchFolder folder;
    const Told begun = train_saving(layouts[i], {.folder = folder / "saves"}, 3);
    ASSERT_TRUE(begun.end) << begun.end.error().message();
    const PlanConfig& other = layouts[(i + 1) % layouts.size()];
    const bool same_batches = other.microbatches == 1 && other.micro_batch == 1;
    expect_same(train_saving(other, {}, kSteps, folder / "saves"), whole, 4, same_batches,
                other.global_batch());
  }
}

TEST(Resume, GoesOnBitForBit) {
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params}) {
    const ScratchFolder folder;
    const PlanConfig config = nano(2, strategy);
    const Told whole = train_saving(config, {});
    const Told begun = train_saving(config, {.folder = folder / "saves"}, 4);
    ASSERT_TRUE(begun.end) << begun.end.error().message();
    ASSERT_EQ(begun.saves.size(), 1U);
    EXPECT_EQ(begun.saves[0].after_step, 4);
    expect_same(train_saving(config, {}, kSteps, folder / "saves"), whole, 5);
  }
}

/// The scale was halved and doubled before the save, and is in the midst of its window then.
TEST(Resume, GoesOnWithTheLossScale) {
  PlanConfig config = nano(2);
  config.param_dtype = DType::fp16;
  config.loss_scale = {.num = std::int64_t{1} << 21};  // of 16 tokens: overflows at first
  config.loss_scale_window = 2;
  const ScratchFolder folder;
  const Told whole = train_saving(config, {});
  ASSERT_TRUE(train_saving(config, {.folder = folder / "saves"}, 4).end);
  const auto saved = SavedState::open(folder / "saves");
  ASSERT_TRUE(saved) << saved.error().message();
  ASSERT_TRUE(saved->manifest().position.loss_scale);
  EXPECT_LT(saved->manifest().position.loss_scale->scale, 0x1p17F);
  const Told later = train_saving(config, {}, kSteps, folder / "saves");
  expect_same(later, whole, 5);
  for (std::size_t i = 0; i < later.steps.size(); ++i)
    EXPECT_EQ(later.steps[i].loss_scale, whole.steps[4 + i].loss_scale);
}

/// Its scales are of the history before the save, of steps that the resumed run does not see.
TEST(Resume, GoesOnWithTheHistoryOfDelayedScaling) {
  for (const Fp8Amax amax : {Fp8Amax::max, Fp8Amax::most_recent}) {
    PlanConfig config = nano(2);
    config.fp8 = Fp8Recipe::delayed;
    config.fp8_history = 3;
    config.fp8_amax = amax;
    const ScratchFolder folder;
    const Told whole = train_saving(config, {});
    ASSERT_TRUE(whole.end) << whole.end.error().message();
    ASSERT_TRUE(train_saving(config, {.folder = folder / "saves"}, 4).end);
    const auto saved = SavedState::open(folder / "saves");
    ASSERT_TRUE(saved) << saved.error().message();
    const std::vector<float>& kept = saved->manifest().position.amax_history;
    ASSERT_EQ(std::ssize(kept), amax_history::elements(config));
    EXPECT_GT(kept.back(), 0);
    expect_same(train_saving(config, {}, kSteps, folder / "saves"), whole, 5);
    config.fp8_history = 2;
    const Told other = train_saving(config, {}, kSteps, folder / "saves");
    ASSERT_FALSE(other.end);
    EXPECT_THAT(other.end.error().message(), HasSubstr("--fp8-history: expected the save's"));
  }
}

/// One microbatch: all strategies of a world size add in the same order, but for meshes with two
/// axes. With exact sums all do.
TEST(Resume, GoesOnInAnotherLayout) {
  for (const bool exact : {false, true}) {
    std::vector<PlanConfig> layouts;
    for (const Strategy strategy :
         {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
      layouts.push_back(layout(1, 4, strategy));
    if (exact) {
      layouts.push_back(layout(2, 2, Strategy::optim_grads_params));
      layouts.push_back(layouts.back());
      layouts.back().outer_strategy = Strategy::optim;
      layouts.push_back(layout(1, 2, Strategy::optim_grads));  // of half the world, twice the batch
      layouts.back().micro_batch = 2;
      layouts.push_back(layout(1, 1, Strategy::no_shard));
      layouts.back().microbatches = 4;
    }
    for (PlanConfig& config : layouts) config.exact_sums = exact;
    SCOPED_TRACE(exact ? "with exact sums" : "without");
    expect_moves(layouts);
  }
}

/// Experts replicated on each rank, and expert-parallel over two or four ranks, with replicated
/// groups of ranks and sharded over them: each resumes from the save of another.
TEST(Resume, GoesOnWithExpertsOnOtherRanks) {
  test::Sample sample;
  for (const Family family : {Family::olmoe, Family::deepseek}) {
    if (!sample.takes_next()) continue;
    std::vector<PlanConfig> layouts;
    const auto add = [&](PlanConfig config, std::int64_t ep) {
      test::make_family(config.model, family);
      config.expert_parallel = ep;
      config.mesh = with_expert_grid(config.mesh, ep);
      config.exact_sums = true;
      layouts.push_back(std::move(config));
    };
    add(layout(1, 4, Strategy::optim_grads_params), 0);
    add(layout(2, 2, Strategy::optim_grads_params), 2);
    layouts.push_back(layouts.back());
    layouts.back().outer_strategy = Strategy::optim;
    add(layout(1, 4, Strategy::optim), 4);
    add(layout(1, 4, Strategy::optim_grads), 2);
    layouts.back().expert_strategy = Strategy::no_shard;
    add(layout(2, 2, Strategy::no_shard), 2);
    SCOPED_TRACE(to_string(family));
    expect_moves(layouts);
  }
}

/// A save of one rank goes on on 16, moves among groups of them and ends on one again.
TEST(Resume, GoesOnWithExpertsOnSixteenRanks) {
  test::Sample sample;
  const std::filesystem::path models = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios";
  for (const char* name : {"moe_nano", "mla_nano"}) {
    if (!sample.takes_next()) continue;
    const auto model = load_model(name, models / "models");
    ASSERT_TRUE(model) << model.error().message();
    std::vector<PlanConfig> layouts;
    const auto add = [&](PlanConfig config, std::int64_t ep, Strategy outer = Strategy::no_shard) {
      config.model = model->shape;
      config.expert_parallel = ep;
      config.mesh = with_expert_grid(config.mesh, ep);
      config.outer_strategy = outer;
      config.micro_batch = 16 / config.mesh.world_size();
      config.seq_len = 4;
      config.exact_sums = true;
      layouts.push_back(std::move(config));
    };
    add(layout(1, 16, Strategy::optim_grads_params), 8);
    layouts.back().expert_strategy = Strategy::optim;
    add(layout(2, 8, Strategy::optim_grads_params), 4, Strategy::optim);
    add(layout(4, 2, Strategy::optim), 2);
    add(layout(1, 1, Strategy::no_shard), 0);
    SCOPED_TRACE(name);
    expect_moves(layouts);
  }
}

/// Saves hold intervals of parameters, which both rules of the flat buffer take as they are: those
/// of older versions, which had megatron_fsdp alone, too.
TEST(Resume, GoesOnWithTheOtherRuleOfTheFlatBuffer) {
  constexpr std::array rules{LayoutRule::packed, LayoutRule::megatron_fsdp};
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim_grads_params})
    for (const LayoutRule rule : rules) {
      PlanConfig config = nano(3, strategy);  // shards of other sizes by each rule
      config.exact_sums = true;
      config.layout = rule;
      const ScratchFolder folder;
      const Told whole = train_saving(config, {});
      ASSERT_TRUE(train_saving(config, {.folder = folder / "saves"}, 3).end);
      config.layout = rules[rule == rules[0] ? 1 : 0];
      expect_same(train_saving(config, {}, kSteps, folder / "saves"), whole, 4);
    }
}

/// States as they are kept, codes and scales too: rounding them again would change bits.
TEST(Resume, GoesOnWithStatesAsTheyAreKeptOnOtherMeshes) {
  for (const auto& [optimizer, kept] : {std::pair{Optimizer::lion, StateDtype::bf16},
                                        {Optimizer::adamw, StateDtype::blockwise8},
                                        {Optimizer::muon, StateDtype::full}}) {
    PlanConfig config = nano(3, Strategy::optim_grads_params);
    config.exact_sums = true;
    config.state_dtype = kept;
    config.optimizer = optimizer;
    const ScratchFolder folder;
    const Told whole = train_saving(config, {});
    ASSERT_TRUE(train_saving(config, {.folder = folder / "saves"}, 3).end);
    config.mesh = data_parallel_mesh(3, 1);
    config.strategy = Strategy::no_shard;
    expect_same(train_saving(config, {}, kSteps, folder / "saves"), whole, 4);
  }
}

TEST(Resume, GoesOnWithTheSamplesThatNobodyRead) {
  const ScratchFolder folder;
  PlanConfig config = nano(2);
  ASSERT_TRUE(train_saving(config, {.folder = folder / "saves"}, 3).end);
  config.micro_batch = 2;
  const auto state = SavedState::open(folder / "saves");
  ASSERT_TRUE(state);
  // 3 steps of 2 sequences of 16 tokens.
  EXPECT_EQ(state->manifest().position, (TrainPosition{.step = 3, .samples = 6, .tokens = 96}));
  const Told told = train_saving(config, {.folder = folder / "more"}, 4, folder / "saves");
  ASSERT_TRUE(told.end) << told.end.error().message();
  ASSERT_EQ(told.steps.size(), 1U);
  EXPECT_EQ(told.steps[0].seen_tokens, 96 + 64);  // and 4 sequences
  EXPECT_EQ(SavedState::open(folder / "more")->manifest().position,
            (TrainPosition{.step = 4, .samples = 10, .tokens = 160}));
}

TEST(Saves, ComeWhenDueAndAtTheEndAndOldOnesGo) {
  const ScratchFolder folder;
  const Told told = train_saving(nano(2), {.folder = folder / "saves", .every = 2, .kept = 2}, 5);
  ASSERT_TRUE(told.end) << told.end.error().message();
  std::vector<std::int64_t> steps;
  for (const SaveReport& save : told.saves) steps.push_back(save.after_step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 4, 5}));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "saves"))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("latest", "step-00000004", "step-00000005"));
  EXPECT_EQ(std::filesystem::read_symlink(folder / "saves" / "latest"), "step-00000005");
}

TEST(Saves, ChangeNoBit) {
  const ScratchFolder folder;
  expect_same(train_saving(nano(2), {.folder = folder / "saves", .every = 1}),
              train_saving(nano(2), {}), 1);
}

TEST(Saves, OfTheSameStepTakeTheOldOnesPlace) {
  const ScratchFolder folder;
  test::Ranks ranks(nano(2));
  for (const std::int64_t began : {0, 2}) {  // samples before
    Saver saver({.folder = folder / "saves"}, test::identity(ranks.program.config),
                {.step = 1, .samples = began + 2, .tokens = 32});
    const auto saved = ranks.save(saver, {.step = 3, .samples = began + 6, .tokens = 96});
    ASSERT_TRUE(saved) << saved.error().message();
  }
  EXPECT_EQ(SavedState::open(folder / "saves")->manifest().position.samples, 8);
  EXPECT_FALSE(std::filesystem::exists(partial_folder(folder / "saves", 3)));
}

TEST(Saves, OfStepsThatTheRunHasGoneBackBehindGoFirst) {
  const ScratchFolder folder;
  test::Ranks ranks(nano(2));
  Saver saver({.folder = folder / "saves", .kept = 2}, test::identity(ranks.program.config));
  for (const std::int64_t step : {10, 20, 15, 16}) {
    const auto saved = ranks.save(saver, test::position(ranks.program.config, step));
    ASSERT_TRUE(saved) << saved.error().message();
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "saves" / "step-00000015"));
  EXPECT_TRUE(std::filesystem::exists(folder / "saves" / "step-00000016"));
  EXPECT_FALSE(std::filesystem::exists(folder / "saves" / "step-00000020"));
}

/// A run of two steps with a save in `saves`, to be gone on with.
void begin_run(const std::filesystem::path& saves) {
  const Told told = train_saving(nano(2), {.folder = saves}, 2);
  ASSERT_TRUE(told.end) << told.end.error().message();
}

/// Goes on to step 4 and saves there, so that the older save goes. Calls `disturb` at change number
/// `at` of the file system.
Told go_on(const std::filesystem::path& saves, std::int64_t at,
           const std::function<Result<void>()>& disturb) {
  std::atomic<std::int64_t> changes = 0;
  const SaveProbe probe = [&] { return ++changes == at ? disturb() : Result<void>(); };
  return train_saving(nano(2), {.folder = saves, .kept = 1, .probe = probe}, 4, saves);
}

/// Numbers of changes to disturb: nearly all that are not one more piece of data.
std::vector<std::int64_t> moments() {
  const ScratchFolder folder;
  begin_run(folder / "saves");
  std::atomic<std::int64_t> changes = 0;
  const SaveProbe count = [&] { return ++changes, Result<void>(); };
  EXPECT_TRUE(train_saving(nano(2), {.folder = folder / "saves", .kept = 1, .probe = count}, 4,
                           folder / "saves")
                  .end);
  std::vector<std::int64_t> numbers;
  if (test::kOneCase) return {1, changes};
  constexpr std::int64_t kFew = 5;
  constexpr std::int64_t kStride = 17;
  for (std::int64_t at = 1; at <= changes; at += at < kFew || at > changes - 3 * kFew ? 1 : kStride)
    numbers.push_back(at);
  EXPECT_EQ(numbers.back(), changes);
  return numbers;
}

/// The run dies; another one goes on from what is there then.
TEST(Saves, KilledAtAnyChangeLeaveAGoodOne) {
  const Told whole = train_saving(nano(2), {});
  std::set<std::int64_t> found;
  for (const std::int64_t at : moments()) {
    SCOPED_TRACE(fmt::format("killed at change {}", at));
    const ScratchFolder folder;
    const auto saves = folder / "saves";
    begin_run(saves);
    const int status = test::wait_for(test::start_child([&] {
      static_cast<void>(go_on(saves, at, [] {
        ::kill(::getpid(), SIGKILL);
        return Result<void>();
      }));
      return 0;
    }));
    ASSERT_EQ(status, 1000 + SIGKILL);
    const auto state = SavedState::open(saves);
    ASSERT_TRUE(state) << state.error().message();
    const std::int64_t step = state->manifest().position.step;
    found.insert(step);
    expect_same(train_saving(nano(2), {.folder = saves}, kSteps, saves), whole,
                static_cast<std::size_t>(step) + 1);
    for (const auto& entry : std::filesystem::directory_iterator(saves))
      EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  }
  EXPECT_EQ(found, (std::set<std::int64_t>{2, 4}));
}

/// The file system refuses: the run ends with its error.
TEST(Saves, RefusedAtAnyChangeLeaveAGoodOne) {
  for (const std::int64_t at : moments()) {
    SCOPED_TRACE(fmt::format("refused at change {}", at));
    const ScratchFolder folder;
    const auto saves = folder / "saves";
    begin_run(saves);
    const Told told = go_on(
        saves, at, []() -> Result<void> { return fail("disk", "is full", Fault::environment); });
    ASSERT_FALSE(told.end);
    EXPECT_THAT(told.end.error().message(), HasSubstr("disk: is full"));
    EXPECT_EQ(told.end.error().fault, Fault::environment);
    const auto state = SavedState::open(saves);
    ASSERT_TRUE(state) << state.error().message();
    EXPECT_TRUE(state->check(expected_state(build_program(nano(2), {}).value())));
  }
}

TEST(Saves, OnAFullDiskEndTheRunWithTheFileAndTheReason) {
  const ScratchFolder folder;
  const auto saves = folder / "saves";
  ASSERT_TRUE(train_saving(nano(2), {.folder = saves}, 2).end);
  const int status = test::wait_for(test::start_child([&] {
    test::limit_file_size(100'000);  // a rank's part has some 270,000 bytes
    const Told told = train_saving(nano(2), {.folder = saves}, 4, saves);
    const std::string message = told.end ? "" : told.end.error().message();
    test::write_file(folder / "message", message);
    return 0;
  }));
  ASSERT_EQ(status, 0);
  EXPECT_THAT(test::read_file(folder / "message"),
              AllOf(HasSubstr("step-00000004.partial/rank-0000"), HasSubstr("cannot be written"),
                    HasSubstr("File too large")));
  EXPECT_EQ(SavedState::open(saves)->manifest().position.step, 2);
  EXPECT_TRUE(std::filesystem::exists(partial_folder(saves, 4)));
  Saver({.folder = saves}, test::identity(nano(2))).tidy();
  EXPECT_FALSE(std::filesystem::exists(partial_folder(saves, 4)));
}

TEST(Saves, GoToAFolderOfTheirOwn) {
  const ScratchFolder folder;
  const SaveProbe probe = [] { return Result<void>(); };
  test::write_file(folder / "file", "");
  const auto below_a_file = SaveFolder::open(folder / "file" / "saves", probe);
  ASSERT_FALSE(below_a_file);
  EXPECT_THAT(below_a_file.error().message(), HasSubstr("file/saves: cannot be made a folder"));
  EXPECT_EQ(below_a_file.error().fault, Fault::environment);
}

// ---- what must agree ---------------------------------------------------------------------------

std::string disagreement(const std::function<void(RunIdentity&)>& change) {
  const RunIdentity saved = test::identity(nano(2));
  RunIdentity run = saved;
  change(run);
  const auto agreed = check_agreement(run, saved, "manifest.json");
  if (!agreed) return agreed.error().message();
  return agreed->empty() ? "" : "warning: " + agreed->front();
}

TEST(Agreement, IsAskedForInWhatTheStateDependsOn) {
  EXPECT_EQ(disagreement([](RunIdentity&) {}), "");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.seed = 8; }),
            "manifest.json.seed: expected 8, as this run has, got 7");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.model.layers = 9; }),
            "manifest.json.model.layers: expected 9, as this run has, got 3");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.optimizer.beta2 = 0.5; }),
            "manifest.json.optimizer.beta2: expected 0.5, as this run has, got 0.95");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.optimizer = Optimizer::sgd; }),
            "manifest.json.config.optimizer: expected sgd, as this run has, got adamw");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.main_dtype = DType::bf16; }),
            "manifest.json.config.main_dtype: expected bf16, as this run has, got fp32");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.frozen = {"mlp"}; }),
            "manifest.json.config.frozen: expected mlp, as this run has, got none");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.state_dtype = StateDtype::bf16; }),
            "manifest.json.config.state_dtype: expected bf16, as this run has, got full");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.no_decay = {"mlp"}; }),
            "manifest.json.config.no_decay: expected mlp, as this run has, got none");
}

TEST(Agreement, IsNotAskedForInTheRest) {
  EXPECT_EQ(disagreement([](RunIdentity& run) {
              run.config.mesh = data_parallel_mesh(2, 1);
              run.config.strategy = Strategy::no_shard;
              run.config.layout = LayoutRule::megatron_fsdp;
              run.config.clip = {1, 2};
              run.config.lr_scale = {"mlp=2"};
              run.config.recompute.kind = Recompute::full;
              run.plan_hash = run.run_id = "another";
              run.data.description = "the same, elsewhere";
            }),
            "");
  EXPECT_EQ(disagreement([](RunIdentity& run) {
              run.data = {.description = "prose", .samples = 64, .fingerprint = 13};
            }),
            "warning: the data are others than those before the save: prose, not counting");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.micro_batch = 3; }),
            "warning: a step has 6 sequences, those before the save had 2");
  EXPECT_EQ(disagreement([](RunIdentity& run) { run.config.document_mask = true; }),
            "warning: attention is masked between documents, before the save it was not");
}

TEST(DataIdentity, IsThatOfTheSamples) {
  Counting data;
  const DataIdentity one = identify(data, 16).value();
  EXPECT_EQ(one, identify(data, 16).value());
  data.mute = [](std::int64_t sample) { return sample == 63; };  // the last one is looked at
  EXPECT_NE(one.fingerprint, identify(data, 16)->fingerprint);
  // Where documents end counts where it is asked for.
  EXPECT_NE(one.fingerprint, identify(data, 16, true)->fingerprint);
  data.size = 1;
  EXPECT_TRUE(identify(data, 16));
}

/// Elements of a parameter lie in another order on ranks of tp than on one rank: saves of either are
/// read by the other.
TEST(Resume, OtherRanksOfTpGoOn) {
  PlanConfig one = nano(1);
  one.model.kv_heads = 4;
  one.param_dtype = one.main_dtype = one.grad_dtype = one.reduce_dtype = DType::fp64;
  one.microbatches = 4;
  const auto split = [&](std::int64_t shards, std::int64_t tp) {
    PlanConfig config = one;
    config.mesh = data_parallel_mesh(1, shards);
    config.mesh.resize(Axis::tp, tp);
    config.microbatches = 4 / shards;
    return config;
  };
  const Told straight = train_saving(one, {}, kSteps);
  const std::vector<PlanConfig> turns{one, split(2, 2), split(1, 4), split(2, 1)};
  const ScratchFolder folder;
  std::filesystem::path from;
  Told last;
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    const std::int64_t until =
        turn + 1 == turns.size() ? kSteps : static_cast<std::int64_t>(turn) + 1;
    const auto into = folder.path() / std::to_string(turn);
    last = train_saving(turns[turn], {.folder = into, .every = 1}, until, from);
    ASSERT_TRUE(last.end) << last.end.error().message();
    from = into;
  }
  ASSERT_EQ(last.weights.size(), straight.weights.size());
  for (const auto& [name, weights] : straight.weights)
    for (std::size_t i = 0; i < weights.size(); ++i)
      ASSERT_NEAR(last.weights.at(name).at(i), weights[i], 1e-6) << name << " " << i;
}

}  // namespace
}  // namespace mfsdp
