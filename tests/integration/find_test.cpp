// --find against brute force: random problems, every candidate tried one by one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/model/hf_config.hpp"
#include "core/request/plan_options.hpp"
#include "core/schedule/build.hpp"
#include "sim/predict/predict.hpp"
#include "tests/support/run_tool.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;

const std::filesystem::path kScenarios = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios";

/// A GPU like the H100 with that much memory.
std::string gpu_file(const test::ScratchFolder& folder, std::int64_t capacity) {
  std::string text = test::read_file(kScenarios / "gpus" / "h100.toml");
  const std::string line = "capacity_bytes = 84900000000";
  const std::size_t at = text.find(line);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, line.size(), fmt::format("capacity_bytes = {}", capacity));
  const auto path = folder / "small.toml";
  test::write_file(path, text);
  return path.string();
}

/// One way to run the model, predicted by the library alone.
struct Tried {
  bool fits = false;
  double tokens_per_second = 0;  ///< of all GPUs
  double cost = 0;               ///< GPU-seconds a token
};

class Brute {
 public:
  Brute(const std::string& model, const std::string& gpu)
      : shape_(load_model(model, kScenarios / "models").value().shape),
        gpu_(load_gpu(gpu, kScenarios / "gpus").value()) {}

  /// None where there is no such configuration.
  std::optional<Tried> outcome(const CommonOptions& options) const {
    const auto config = make_plan_config(options, shape_);
    const auto cluster = make_cluster(gpu_, options.gpus, options.node_size());
    if (!config || !cluster) return std::nullopt;
    const auto program =
        build_program(*config, {.model_name = "m", .tool_version = "", .stored_hash = ""});
    if (!program) return std::nullopt;
    Bytes pools = runtime_bytes(gpu_, std::ssize(program->communicators));
    for (const Pool& pool : program->pools)
      if (pool.space == MemorySpace::device) pools += pool.height;
    const auto prediction = predict(*program, make_cost_model(*cluster).value());
    if (!prediction) return std::nullopt;
    EXPECT_EQ(prediction->run.memory.allocated, pools);  // every "fits" by its pools
    EXPECT_EQ(prediction->run.memory.fits, pools <= gpu_.capacity);
    const double speed = prediction->run.time.tokens_per_second_per_gpu;
    return Tried{.fits = pools <= gpu_.capacity,
                 .tokens_per_second = speed * static_cast<double>(options.gpus),
                 .cost = 1 / speed};
  }

  [[nodiscard]] bool fits(const CommonOptions& options) const {
    const auto one = outcome(options);
    return one && one->fits;
  }

 private:
  ModelShape shape_;
  Gpu gpu_;
};

class Problems {
 public:
  explicit Problems(unsigned seed) : random_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<std::int64_t>(values.size()) - 1)];
  }

 private:
  std::mt19937 random_;
};

constexpr std::int64_t kRuntime = 3'000'000'000;  // about; three communicators take less

json find(const std::string& what, const std::string& flags, const std::string& gpu) {
  const auto run = test::run_sim(fmt::format(
      "--model llama_tiny --gpu '{}' --find {} {} --no-save --output json", gpu, what, flags));
  EXPECT_LE(run.status, 1) << what << " " << flags;
  return json::parse(run.out);
}

/// Where nothing fits, searches for limits go on with less of what is not given: here all is.
constexpr std::string_view kAsUsual = " --prefetch 1 --grad-slots 2 --recompute selective";

std::optional<std::int64_t> value_of(const json& answer) {
  if (answer["value"].is_null()) return std::nullopt;
  return answer["value"].get<std::int64_t>();
}

TEST(Find, LargestMicroBatchIsThatOfBruteForce) {
  Problems problems(1);
  for (int i = 0; i < test::cases(6); ++i) {
    const test::ScratchFolder folder;
    const std::string gpu = gpu_file(folder, kRuntime + problems.between(0, 400'000'000));
    CommonOptions options{.gpus = problems.one_of<std::int64_t>({1, 4, 8}),
                          .gpu = gpu,
                          .seq_len = problems.one_of<std::int64_t>({96, 256, 512})};
    options.config.allocator =
        problems.one_of({AllocatorPolicy::best_fit, AllocatorPolicy::temporary});
    std::string flags =
        fmt::format("--gpus {} --seq-len {} --allocator {}{}", options.gpus, *options.seq_len,
                    to_string(options.config.allocator), kAsUsual);
    std::int64_t most = 400;
    if (i % 3 == 0) {
      most = problems.one_of<std::int64_t>({12, 36, 60});
      options.global_batch = most * options.gpus;
      flags += fmt::format(" --global-batch {}", *options.global_batch);
    }
    const Brute brute("llama_tiny", gpu);
    std::optional<std::int64_t> best;
    bool ended = false;  // memory is far over: no larger one can fit
    for (std::int64_t m = 1; m <= most && !ended; ++m) {
      options.config.micro_batch = m;
      if (brute.fits(options)) best = m;
      ended = best && m > 2 * *best + 8 && i % 3 != 0;
    }
    EXPECT_EQ(value_of(find("max-micro-batch", flags, gpu)), best) << flags;
  }
}

TEST(Find, LongestSequenceIsThatOfBruteForce) {
  Problems problems(2);
  for (int i = 0; i < test::cases(10); ++i) {
    const test::ScratchFolder folder;
    const std::string gpu = gpu_file(folder, kRuntime + problems.between(0, 300'000'000));
    CommonOptions options{.gpus = problems.one_of<std::int64_t>({1, 8}), .gpu = gpu};
    options.config.micro_batch = problems.between(1, 3);
    const std::string flags = fmt::format("--gpus {} --micro-batch {}{}", options.gpus,
                                          options.config.micro_batch, kAsUsual);
    const Brute brute("llama_tiny", gpu);
    std::optional<std::int64_t> best;
    for (std::int64_t s = 256; s <= 256 * 160; s += 256) {
      options.seq_len = s;
      if (brute.fits(options)) best = s;
      if (best && s > 2 * *best + 2048) break;
    }
    EXPECT_EQ(value_of(find("max-seq-len", flags, gpu)), best) << flags;
  }
}

TEST(Find, FewestGpusAreThoseOfBruteForce) {
  Problems problems(3);
  for (int i = 0; i < test::cases(10); ++i) {
    const test::ScratchFolder folder;
    const std::string gpu = gpu_file(folder, kRuntime + problems.between(0, 120'000'000));
    CommonOptions options{.gpu = gpu, .seq_len = 128};
    options.config.micro_batch = problems.between(1, 6);
    const std::int64_t most = problems.one_of<std::int64_t>({4, 32, 48});
    const Brute brute("llama_tiny", gpu);
    std::optional<std::int64_t> best;
    for (const std::int64_t n : {1, 2, 4, 8, 16, 24, 32, 40, 48}) {
      if (n > most || best) break;
      options.gpus = n;
      if (brute.fits(options)) best = n;
    }
    const std::string flags = fmt::format("--gpus {} --seq-len 128 --micro-batch {}{}", most,
                                          options.config.micro_batch, kAsUsual);
    EXPECT_EQ(value_of(find("min-gpus", flags, gpu)), best) << flags;
  }
}

/// A combination that only fits with the least memory is found, and its flags are printed.
TEST(Find, WhereNothingFitsTheLeastIsTried) {
  const std::string flags =
      "--model llama3_70b --cluster dgx_h100 --gpus 64 --seq-len 32k --find max-micro-batch "
      "--no-save --output json";
  const json answer = json::parse(test::run_sim(flags).out);
  EXPECT_EQ(answer["with"], "--recompute full --prefetch 0 --grad-slots 1");
  EXPECT_EQ(value_of(answer), 1);
  const json fixed = json::parse(test::run_sim(flags + std::string(kAsUsual)).out);
  EXPECT_EQ(fixed["with"], "");
  EXPECT_FALSE(value_of(fixed));
}

/// To report that nothing fits, plans are built only for the shown combinations, not for thousands.
TEST(Find, WhereNothingFitsFewPlansAreBuilt) {
  if (test::kOneCase) GTEST_SKIP() << "goes through two thousand worlds";
  const auto run = test::run_sim(
      fmt::format("--model llama3_70b --find min-gpus --no-save --output json{}", kAsUsual));
  EXPECT_EQ(run.status, 1);
  const json answer = json::parse(run.out);
  EXPECT_FALSE(value_of(answer));
  const json& tried = answer["tried"];
  EXPECT_EQ(tried.size(), 3U + 16'384U / 8U);  // 1, 2 and 4 GPUs; 8 to 16,384
  const auto built =
      std::ranges::count_if(tried, [](const json& one) { return one.contains("allocated_bytes"); });
  EXPECT_EQ(built, 12);
  EXPECT_GT(tried.back()["allocated_bytes"].get<std::int64_t>(), 80'000'000'000);
}

TEST(Find, FastestAndCheapestAreThoseOfBruteForce) {
  Problems problems(4);
  constexpr std::array kStrategies{Strategy::optim_grads_params, Strategy::optim_grads,
                                   Strategy::optim, Strategy::no_shard};
  for (int i = 0; i < test::cases(6); ++i) {
    const test::ScratchFolder folder;
    const std::string gpu = gpu_file(folder, kRuntime + problems.between(0, 200'000'000));
    const bool fastest = i % 2 == 0;
    const std::vector<std::int64_t> worlds =
        fastest ? std::vector<std::int64_t>{16} : std::vector<std::int64_t>{8, 16};
    const Brute brute("llama_tiny", gpu);
    // Every way to run the model with a micro-batch of m.
    const auto each_way = [&](std::int64_t m, const auto& visit) {
      for (const std::int64_t gpus : worlds)
        for (const Strategy strategy : kStrategies)
          for (const Recompute recompute : {Recompute::none, Recompute::full})
            for (std::int64_t outer = 1; outer <= worlds.back() / 8; outer *= 2) {
              CommonOptions way{.gpus = gpus, .gpu = gpu, .outer_dp = outer, .seq_len = 256};
              way.config.strategy = strategy;
              way.config.micro_batch = m;
              way.config.recompute = {.kind = recompute};
              visit(way);
            }
    };
    // The largest micro-batch that fits is what each GPU of the widest world has in a step.
    std::optional<std::int64_t> largest;
    for (const std::int64_t m : {1, 2, 8})
      each_way(m, [&](const CommonOptions& way) {
        if (brute.fits(way)) largest = m;
      });
    double best = 0;
    for (const std::int64_t m : {1, 2, 8})
      each_way(m, [&](CommonOptions way) {
        if (m > largest.value_or(0)) return;
        way.global_batch = *largest * worlds.back();
        const auto one = brute.outcome(way);
        if (!one || !one->fits) return;
        best = std::max(best, fastest ? one->tokens_per_second : 1 / one->cost);
      });
    const json answer =
        find(fastest ? "fastest" : "cheapest",
             fmt::format("--gpus {} --seq-len 256 --recompute none,full --micro-batch 1,2,8 "
                         "--prefetch 1 --grad-slots 2 --placement earliest --gather nccl "
                         "--reduce nccl",
                         fmt::join(worlds, ",")),
             gpu);
    EXPECT_EQ(answer["held_global_batch"],
              largest ? json(*largest * worlds.back()) : json(nullptr));
    if (best == 0) {
      EXPECT_TRUE(answer["winner"].is_null());
      continue;
    }
    ASSERT_FALSE(answer["winner"].is_null());
    EXPECT_TRUE(answer["winner"]["memory"]["fits"]);
    const double speed = answer["winner"]["time"]["tokens_per_second_per_gpu"];
    const double gpus = answer["winner"]["cluster"]["gpus"];
    EXPECT_DOUBLE_EQ(fastest ? speed * gpus : speed, best);
  }
}

// Short sequences hide gathers badly: prefetch of more units is tried with the one combination
// that the flags leave.
TEST(Find, TriesPrefetchAndSlotsWithTheBest) {
  const Brute brute("llama3_8b", "h200");
  double usual = 0;
  double best = 0;
  std::pair<std::int64_t, std::int64_t> least;  // of equals the one that takes less
  for (const std::int64_t prefetch : {1, 2, 3})
    for (const std::int64_t slots : {2, 3, 4}) {
      CommonOptions way{.gpus = 8, .gpu = "h200", .seq_len = 2048};
      way.config.prefetch = prefetch;
      way.config.grad_slots = slots;
      const auto one = brute.outcome(way);
      ASSERT_TRUE(one && one->fits);
      if (one->tokens_per_second > best) least = {prefetch, slots};
      best = std::max(best, one->tokens_per_second);
      if (prefetch == 1 && slots == 2) usual = one->tokens_per_second;
    }
  const auto run = test::run_sim(
      "--model llama3_8b --gpu h200 --gpus 8 --seq-len 2048 --strategy optim_grads_params "
      "--recompute selective --micro-batch 1 --outer-dp 1 --placement earliest --gather nccl "
      "--reduce nccl --find fastest --no-save --output json");
  ASSERT_EQ(run.status, 0);
  const json winner = json::parse(run.out)["winner"];
  ASSERT_GT(best, 1.002 * usual);  // what more memory has to gain
  EXPECT_DOUBLE_EQ(winner["time"]["tokens_per_second_per_gpu"].get<double>() * 8, best);
  EXPECT_EQ(winner["config"]["prefetch"], least.first);
  EXPECT_EQ(winner["config"]["grad_slots"], least.second);
}

/// Windows serve ZeRO-3 and, to reduce, ZeRO-2 alone: the fastest strategy without is not the
/// fastest with them.
TEST(Find, TriesTransportsWithTheBestOfEachStrategy) {
  const Brute brute("llama3_8b", "h200");
  double plain = 0;
  double best = 0;
  for (const auto strategy :
       {Strategy::optim_grads_params, Strategy::optim_grads, Strategy::optim, Strategy::no_shard})
    for (const auto placement : {CollectivePlacement::earliest, CollectivePlacement::attention,
                                 CollectivePlacement::gathers})
      for (const auto gather : {Transport::nccl, Transport::copy_engine})
        for (const auto reduce : {Transport::nccl, Transport::symmetric}) {
          CommonOptions way{.gpus = 8, .gpu = "h200", .seq_len = 8192};
          way.config.strategy = strategy;
          way.config.placement = placement;
          way.config.gather = gather;
          way.config.reduce = reduce;
          const auto one = brute.outcome(way);
          if (!one || !one->fits) continue;
          best = std::max(best, one->tokens_per_second);
          if (placement == CollectivePlacement::earliest && gather == Transport::nccl &&
              reduce == Transport::nccl)
            plain = std::max(plain, one->tokens_per_second);
        }
  const std::string flags =
      "--model llama3_8b --gpus 8 --seq-len 8192 --recompute selective --micro-batch 1 "
      "--outer-dp 1 --prefetch 1 --grad-slots 2 --find fastest --no-save --output json --gpu ";
  const auto run = test::run_sim(flags + "h200");
  ASSERT_EQ(run.status, 0);
  const json winner = json::parse(run.out)["winner"];
  ASSERT_GT(best, 1.002 * plain);
  EXPECT_DOUBLE_EQ(winner["time"]["tokens_per_second_per_gpu"].get<double>() * 8, best);
  EXPECT_EQ(winner["config"]["reduce"], "symmetric");
  // Windows need NVLink.
  const json other = json::parse(test::run_sim(flags + "l40s").out)["winner"];
  EXPECT_EQ(other.is_null() ? "nccl" : other["config"]["reduce"].get<std::string>(), "nccl");
}

// Only mfsdp has finer choices, the other engine has none. Their results do not count as
// combinations.
TEST(Find, VariesOwnRowsAmongThoseOfOtherEngines) {
  if (test::kOneCase) GTEST_SKIP() << test::kTheorem;
  const std::string flags =
      "--model llama_nano --gpus 16 --micro-batch 2 --strategy 3 --recompute none,full:1 "
      "--outer-dp 1 --find fastest --no-save --output json";
  const auto both = test::run_sim(flags + " --engine fsdp2,mfsdp");
  const auto own = test::run_sim(flags);
  ASSERT_EQ(both.status, 0);
  ASSERT_EQ(own.status, 0);
  const json found = json::parse(own.out);
  const json winner = json::parse(both.out)["winner"];
  EXPECT_EQ(winner["engine"], "mfsdp");
  EXPECT_EQ(winner["plan_hash"], found["winner"]["plan_hash"]);
  EXPECT_NE(winner["config"]["prefetch"], 1);
  EXPECT_EQ(found["tried"], 2);
  EXPECT_EQ(found["predicted"], 2);
}

TEST(Find, WithoutNvlinkPlacesCollectivesAlone) {
  const auto run = test::run_sim("--model llama_nano --gpus 8 --gpu l40s --find fastest --no-save");
  ASSERT_EQ(run.status, 0);
  EXPECT_NE(run.out.find("also with --placement earliest,attention,gathers.\n"), std::string::npos);
  EXPECT_EQ(run.out.find("--gather"), std::string::npos);
}

// Eight microbatches: experts that are gathered for each use cost more than whole ones. So their
// strategy differs from that of the rest, and brute force over the strategies agrees.
// One placement: another one is faster by a ten-thousandth, and brute force tries none.
TEST(Find, TriesStrategiesOfExpertsWithTheBest) {
  const Brute brute("mixtral_8x7b", "h200");
  double usual = 0;
  double best = 0;
  for (const auto strategy :
       {Strategy::optim_grads_params, Strategy::optim_grads, Strategy::optim, Strategy::no_shard}) {
    CommonOptions way{.gpus = 16, .gpu = "h200", .seq_len = 2048};
    way.global_batch = 128;
    way.config.recompute.kind = Recompute::full;
    way.config.expert_parallel = 8;
    way.config.capacity_factor = Rational{5, 4};
    way.config.expert_strategy = strategy;
    const auto one = brute.outcome(way);
    ASSERT_TRUE(one);
    if (!one->fits) continue;
    best = std::max(best, one->tokens_per_second);
    if (strategy == Strategy::optim_grads_params) usual = one->tokens_per_second;
  }
  const auto run = test::run_sim(
      "--model mixtral_8x7b --gpu h200 --gpus 16 --seq-len 2048 --global-batch 128 --ep 8 "
      "--capacity-factor 1.25 --strategy optim_grads_params --recompute full --micro-batch 1 "
      "--outer-dp 1 --placement earliest --prefetch 1 --grad-slots 2 --find fastest --no-save "
      "--output json");
  ASSERT_EQ(run.status, 0);
  const json winner = json::parse(run.out)["winner"];
  ASSERT_GT(best, 1.002 * usual);  // what more memory has to gain
  EXPECT_DOUBLE_EQ(winner["time"]["tokens_per_second_per_gpu"].get<double>() * 16, best);
  EXPECT_NE(winner["config"]["expert_strategy"], "optim_grads_params");
}

}  // namespace
}  // namespace mfsdp
