// Every way to train a model comes to the same weights: bit for bit with --exact-sums, and without
// within the classes of combinations that add in one order; between these, gradients differ by no
// more than their additions can.
//
// By default a part of all combinations is run; MFSDP_EQUALITY=full runs all, which takes minutes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "core/model/hf_config.hpp"
#include "tests/verify/cpu/training_run.hpp"

namespace mfsdp {
namespace {

using test::first_difference;
using test::hash_of;
using test::ParameterBits;
using test::train_on_machine;
using test::Trained;

/// Sequences of a step: divisible by every world size times three microbatches.
constexpr std::int64_t kGlobalBatch = 360;
constexpr std::int64_t kTokens = 4;

bool runs_all() {
  const char* value = std::getenv("MFSDP_EQUALITY");
  return value != nullptr && std::string_view(value) == "full";
}

std::int64_t ranks_of(const PlanConfig& config) { return config.mesh.world_size(); }

/// Strategies on flat meshes, HSDP under each of them, HFSDP; with one and three microbatches.
std::vector<PlanConfig> layouts(const ModelShape& model) {
  constexpr std::array strategies{Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                  Strategy::optim_grads_params};
  std::vector<PlanConfig> all;
  const auto add = [&](Mesh mesh, Strategy strategy, Strategy outer = Strategy::no_shard) {
    for (const std::int64_t microbatches : {1, 3}) {
      PlanConfig& config = all.emplace_back();
      config.model = model;
      config.mesh = mesh;
      config.strategy = strategy;
      config.outer_strategy = outer;
      config.seq_len = kTokens;
      config.microbatches = microbatches;
      config.micro_batch = kGlobalBatch / (mesh.world_size() * microbatches);
    }
  };
  for (const std::int64_t ranks : {1, 2, 3, 4, 5, 8})
    for (const Strategy strategy : strategies) add({.dp_outer = 1, .dp_shard = ranks}, strategy);
  for (const std::int64_t shards : {2, 4}) {
    const Mesh mesh{.dp_outer = 2, .dp_shard = shards};
    for (const Strategy strategy : strategies) add(mesh, strategy);
    add(mesh, Strategy::optim_grads_params, Strategy::optim);
  }
  return all;
}

/// What may not change a bit, chosen by a number: 0 to 143 are all choices, and numbers in a row
/// differ in each.
void set_schedule(PlanConfig& config, std::int64_t number) {
  constexpr std::array<RecomputePolicy, 4> recomputes{
      RecomputePolicy{.kind = Recompute::none}, RecomputePolicy{.kind = Recompute::selective},
      RecomputePolicy{.kind = Recompute::full},
      RecomputePolicy{.kind = Recompute::full, .full_blocks = 1}};
  config.recompute = recomputes[static_cast<std::size_t>(number % 4)];
  config.prefetch = number % 3;
  config.allocator = static_cast<AllocatorPolicy>((number / 12 + number) % 4);
  const bool needs_two = config.model.tied_embeddings && config.strategy >= Strategy::optim_grads;
  config.grad_slots = std::max<std::int64_t>(1 + (number / 48 + number) % 3, needs_two ? 2 : 1);
}

/// Every layout with five schedules: 340 combinations, which hold each of the 144 schedules twice.
/// The part that is run by default has every layout once.
std::vector<PlanConfig> combinations(const ModelShape& model) {
  const std::int64_t schedules = runs_all() ? 5 : 1;
  std::vector<PlanConfig> all;
  for (const PlanConfig& layout : layouts(model))
    for (std::int64_t i = 0; i < schedules; ++i) {
      PlanConfig config = layout;
      set_schedule(config, std::ssize(all));
      all.push_back(config);
    }
  return all;
}

/// Those that share one add gradients in one order, without --exact-sums.
std::string class_of(const PlanConfig& config) {
  const bool each_microbatch = config.strategy >= Strategy::optim_grads;
  std::string name = fmt::format("{} x {}", config.mesh.dp_outer, config.mesh.dp_shard);
  if (config.outer_strategy == Strategy::optim)
    name += " HFSDP";
  else if (config.mesh.dp_outer > 1)
    name += " HSDP";
  name +=
      fmt::format(", {} microbatch{}", config.microbatches, config.microbatches > 1 ? "es" : "");
  if (config.microbatches > 1 && config.mesh.dp_shard > 1)
    name += each_microbatch ? ", reduced in each" : ", reduced in the last";
  return name;
}

std::string describe(const PlanConfig& c) {
  return fmt::format(
      "{} x {}, {}, outer {}, {} microbatches of {}, recompute {}:{}, allocator {}, "
      "prefetch {}, slots {}",
      c.mesh.dp_outer, c.mesh.dp_shard, to_string(c.strategy), to_string(c.outer_strategy),
      c.microbatches, c.micro_batch, to_string(c.recompute.kind), c.recompute.full_blocks,
      to_string(c.allocator), c.prefetch, c.grad_slots);
}

/// Calls work(i) for i in [0, count) on two threads: ranks and streams are threads themselves, but
/// small meshes leave a core idle.
void for_each_on_two_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto serve = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::jthread other(serve);
  serve();
}

/// What the combinations of one class came to. The first one stands for all.
struct ClassRow {
  std::string name;
  PlanConfig config = {};
  Trained first = {};
  std::int64_t combinations = 0;
  std::set<std::uint64_t> weights = {};  ///< distinct hashes
  std::set<std::uint64_t> gradients = {};
  std::set<std::vector<float>> norms = {};
  double seconds = 0;
  double worst = 0;  ///< of |difference| / bound over gradients, against the class compared with
  std::string difference = {};  ///< where the weights of a combination differ from the first
};

std::uint64_t hash_of_weights(const Trained& trained) {
  return test::hash_of(trained.weights) * 31 + test::hash_of(trained.main_weights);
}

/// Adds a row of combinations that should have come to the same.
void merge(ClassRow& into, const ClassRow& row) {
  if (into.combinations == 0) {
    into.config = row.config;
    into.first = row.first;
  }
  into.combinations += row.combinations;
  into.weights.insert(row.weights.begin(), row.weights.end());
  into.gradients.insert(row.gradients.begin(), row.gradients.end());
  into.norms.insert(row.norms.begin(), row.norms.end());
  into.seconds += row.seconds;
  if (into.weights.size() > 1 && into.difference.empty())
    into.difference = fmt::format("{}\n  against {}\n  gradients {}\n  weights {}",
                                  describe(row.config), describe(into.config),
                                  first_difference(row.first.gradients, into.first.gradients),
                                  first_difference(row.first.weights, into.first.weights));
}

ClassRow row_of(const std::string& name, const PlanConfig& config, Trained trained,
                double seconds) {
  ClassRow row{.name = name, .config = config, .combinations = 1, .seconds = seconds};
  row.weights.insert(hash_of_weights(trained));
  row.gradients.insert(hash_of(trained.gradients));
  row.norms.insert(trained.norms);
  row.first = std::move(trained);
  return row;
}

/// Runs all combinations and sorts them by class.
std::vector<ClassRow> run_all(const std::vector<PlanConfig>& configs,
                              const std::function<std::string(const PlanConfig&)>& class_name) {
  std::vector<ClassRow> rows;
  std::mutex mutex;
  for_each_on_two_threads(configs.size(), [&](std::size_t i) {
    const auto begin = std::chrono::steady_clock::now();
    auto trained = train_on_machine(configs[i], {});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    const std::scoped_lock lock(mutex);
    if (!trained) {
      ADD_FAILURE() << describe(configs[i]) << ": " << trained.error().message();
      return;
    }
    const std::string name = class_name(configs[i]);
    ClassRow one = row_of(name, configs[i], std::move(*trained), taken.count());
    const auto row = std::ranges::find(rows, name, &ClassRow::name);
    if (row == rows.end())
      rows.push_back(std::move(one));
    else
      merge(*row, one);
  });
  std::ranges::sort(rows, {}, &ClassRow::name);
  return rows;
}

void print_header(std::string_view title) {
  fmt::print("\n{}\n{:<44}{:>14}{:>9}{:>11}{:>12}{:>9}\n", title, "class", "combinations",
             "weights", "gradients", "difference", "seconds");
}

void print_row(const ClassRow& row) {
  fmt::print("{:<44}{:>14}{:>9}{:>11}{:>12}{:>9.1f}\n", row.name, row.combinations,
             row.weights.size(), row.gradients.size(),
             row.worst == 0 ? "none" : fmt::format("{:.3f}", row.worst), row.seconds);
}

void expect_one(const ClassRow& row) {
  EXPECT_EQ(row.weights.size(), 1U) << row.name << ": " << row.difference;
  EXPECT_EQ(row.gradients.size(), 1U) << row.name << ": " << row.difference;
  EXPECT_EQ(row.norms.size(), 1U) << row.name;
}

ModelShape nano() {
  return load_model("llama_nano", std::string(MFSDP_SOURCE_DIR) + "/scenarios/models")
      .value()
      .shape;
}

// ---- (a) -------------------------------------------------------------------------------------

TEST(Equality, ExactSumsGiveOneResult) {
  std::vector<PlanConfig> configs = combinations(nano());
  for (PlanConfig& config : configs) config.exact_sums = true;
  const std::vector<ClassRow> rows = run_all(configs, class_of);
  ClassRow all{.name = "all of them"};
  print_header(
      "--exact-sums: 20 steps of llama_nano, 120 sequences of 8 tokens each; distinct hashes");
  for (const ClassRow& row : rows) {
    print_row(row);
    expect_one(row);
    merge(all, row);
  }
  print_row(all);
  expect_one(all);
  EXPECT_EQ(all.combinations, std::ssize(configs));
  // It did train: the steps changed the weights, and for the better.
  ASSERT_FALSE(rows.empty());
  EXPECT_LT(rows.front().first.losses.back(), rows.front().first.losses.front());
}

// ---- (b) -------------------------------------------------------------------------------------

float value_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Per element N M 2^-23 sum |g_i|, over what each of N ranks adds in each of M microbatches.
using Bounds = std::map<std::string, std::vector<double>>;

Bounds bounds_of(const PlanConfig& config) {
  PlanConfig alone = config;
  alone.mesh = {};
  alone.outer_strategy = Strategy::no_shard;
  alone.microbatches = 1;
  const std::int64_t parts = config.mesh.world_size() * config.microbatches;
  Bounds bounds;
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto trained =
        train_on_machine(alone, {.steps = 1, .first_sample = part * config.micro_batch});
    if (!trained) throw std::runtime_error(trained.error().message());
    for (const auto& [name, bits] : trained->gradients) {
      std::vector<double>& to = bounds[name];
      to.resize(bits.size());
      for (std::size_t i = 0; i < bits.size(); ++i)
        to[i] += std::fabs(value_of(bits[i])) * static_cast<double>(parts) * 0x1p-23;
    }
  }
  return bounds;
}

/// The largest |a - b| / bound; infinite where elements differ whose bound is 0.
double worst_ratio(const ParameterBits& a, const ParameterBits& b, const Bounds& bounds) {
  double worst = 0;
  for (const auto& [name, bits] : a)
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const double difference =
          std::fabs(double{value_of(bits[i])} - double{value_of(b.at(name)[i])});
      if (difference > 0) worst = std::max(worst, difference / bounds.at(name)[i]);
    }
  return worst;
}

/// How far the norms of two such gradients may be apart: as far as the gradients themselves, and
/// what rounding partials, norm and 1/T to fp32 adds.
double norm_bound(const Bounds& bounds, double norm) {
  double squares = 0;
  for (const auto& [name, values] : bounds)
    for (const double value : values) squares += value * value;
  return std::sqrt(squares) + norm * 0x1p-21;
}

TEST(Equality, ClassesGiveOneResultEachAndAreClose) {
  std::vector<ClassRow> rows = run_all(combinations(nano()), class_of);
  print_header(
      "in floating point; difference: of step-1 gradients to the first class with as many "
      "ranks and microbatches, of the bound");
  for (ClassRow& row : rows) {
    expect_one(row);
    const ClassRow& other = *std::ranges::find_if(rows, [&](const ClassRow& candidate) {
      return ranks_of(candidate.config) == ranks_of(row.config) &&
             candidate.config.microbatches == row.config.microbatches;
    });
    if (&other != &row) {
      const Bounds bounds = bounds_of(row.config);
      row.worst = worst_ratio(row.first.gradients, other.first.gradients, bounds);
      EXPECT_LE(row.worst, 1) << row.name << " against " << other.name;
      // The norm is of the mean over T tokens; the bounds are of the sum over at least T / 2.
      const double norm = row.first.norms.front();
      const double tokens = static_cast<double>(kGlobalBatch * kTokens) / 2;
      EXPECT_NEAR(norm, other.first.norms.front(), norm_bound(bounds, norm * tokens) / tokens)
          << row.name << " against " << other.name;
    }
    print_row(row);
  }
}

}  // namespace
}  // namespace mfsdp
