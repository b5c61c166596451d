// Megatron-Core's steps over tp and cp. There is no recorded run: the expected values follow from
// shapes, with the arithmetic beside them.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tests/sim/engines/framework_engines.hpp"

namespace mfsdp {
namespace {

using test::engine_options;
using test::plan_of;

constexpr EngineKind kMegatron = EngineKind::mcore;
/// Long enough for tensors of a rank to be multiples of the allocator's 2 MiB.
constexpr std::int64_t kLength = 16384;

ModelShape shared_llama(std::int64_t layers) {
  return test::llama(1024, 4096, layers, 16, 8, 32000);
}

ModelShape shared_gpt(std::int64_t layers) {
  ModelShape shape = test::llama(1024, 4096, layers, 16, 16, 32000);
  shape.family = Family::gpt2;
  shape.activation = Activation::gelu_tanh;
  shape.qkv_bias = true;
  shape.tied_embeddings = true;
  shape.max_seq_len = kLength;
  return shape;
}

PlanConfig shared_config(const ModelShape& shape, std::int64_t tp, std::int64_t cp,
                         std::int64_t data = 2) {
  PlanConfig config = test::config_of(shape, kLength, data);
  config.mesh.resize(Axis::cp, cp);
  config.mesh.resize(Axis::tp, tp);
  return config;
}

/// Bytes that a layer keeps from forward to backward.
std::int64_t kept_of_layer(ModelShape (*shape)(std::int64_t), std::int64_t tp, std::int64_t cp,
                           const std::vector<std::string>& options = {}) {
  const auto activations = [&](std::int64_t layers) {
    const EnginePlan plan =
        plan_of(kMegatron, shared_config(shape(layers), tp, cp), engine_options(options));
    return engine_memory(plan, {}).at_peak[static_cast<std::size_t>(Category::activation)].value;
  };
  return (activations(13) - activations(11)) / 2;
}

/// Bytes of a Llama's layer with flash attention and SwiGLU, nothing recomputed: 8h + 4ad + 4kd + 6f +
/// 4a a token, all divided by ranks of tp with sequence parallelism.
std::int64_t llama_formula(std::int64_t tp, std::int64_t cp, bool is_sequence_parallel = true) {
  constexpr std::int64_t kStates = 8 * 1024;
  constexpr std::int64_t kInner = 4 * 16 * 64 + 4 * 8 * 64 + 6 * 4096 + 4 * 16;
  const std::int64_t tokens = kLength / cp;
  return tokens * (kStates / (is_sequence_parallel ? tp : 1) + kInner / tp);
}

void expect_share(std::int64_t bytes, std::int64_t formula, double within) {
  EXPECT_NEAR(static_cast<double>(bytes) / static_cast<double>(formula), 1, within);
}

TEST(McoreTensor, KeepsOfALayerWhatTheFormulaOfLlamaSays) {
  // Beside it: two sums of norms, 8 bytes a row of 33,000, and random state.
  for (const std::int64_t tp : {1, 2, 4, 8})
    expect_share(kept_of_layer(shared_llama, tp, 1), llama_formula(tp, 1), 0.002);
  expect_share(kept_of_layer(shared_llama, 4, 1, {"sequence_parallel=false"}),
               llama_formula(4, 1, false), 0.001);
}

TEST(McoreTensor, KeepsOfAGptWhatKorthikantiSays) {
  // 34 sbh / t with sequence parallelism and flash attention, of which 2 are dropout's masks, which
  // are not described. Beside it: sums of attention, 4 a token and head, and of norms, 16.
  for (const std::int64_t tp : {1, 2, 4, 8}) {
    const std::int64_t states = kLength * 1024 * (34 - 2) / tp;
    const std::int64_t sums = kLength * (4 * 16 + 16) / tp;
    expect_share(kept_of_layer(shared_gpt, tp, 1), states + sums, 0.0005);
  }
  // Without: 10 + 24/t, of which the masks are 2.
  const std::int64_t states = kLength * 1024 * (8 + 24 / 4);
  expect_share(kept_of_layer(shared_gpt, 4, 1, {"sequence_parallel=false"}), states, 0.005);
}

TEST(McoreContext, KeepsAPartOfTheSequenceAndWhatItsExchangeNeeds) {
  // A ring keeps a pair of keys and values that came last in place of the own one; gathered keys are not
  // kept.
  for (const char* comm : {"cp_comm_type=p2p", "cp_comm_type=all_gather"})
    expect_share(kept_of_layer(shared_llama, 1, 4, {comm}), llama_formula(1, 4), 0.001);
  // By heads: attention's output before it is exchanged back, too.
  const std::int64_t output = kLength / 4 * 16 * 64 * 2;
  expect_share(kept_of_layer(shared_llama, 1, 4, {"cp_comm_type=a2a"}),
               llama_formula(1, 4) + output, 0.001);
  expect_share(kept_of_layer(shared_llama, 2, 2, {"cp_comm_type=a2a"}),
               llama_formula(2, 2) + output, 0.001);
}

/// Collectives of the first layer over an axis in a phase: kind and elements.
using Moved = std::pair<CollectiveKind, std::int64_t>;
std::vector<Moved> moved_in_layer(const EnginePlan& plan, Axis axis, Phase phase) {
  std::vector<Moved> moved;
  for (const Op& op : plan.program.find_plan(PlanRole::train)->segments.front().ops) {
    const auto* made = std::get_if<Collective>(&op.body);
    if (made == nullptr || op.phase != phase || !op.name.starts_with("layers.0")) continue;
    const Communicator& among = plan.program.communicators[made->communicator.value];
    if (among.axes == std::vector{axis}) moved.emplace_back(made->kind, made->count);
  }
  return moved;
}

TEST(McoreTensor, GathersAndReducesRowsAsTransformerEngineDoes) {
  using enum CollectiveKind;
  constexpr std::int64_t kOwn = kLength / 4 * 1024;
  const PlanConfig config = shared_config(shared_llama(1), 4, 1);
  const EnginePlan plan = plan_of(kMegatron, config);
  EXPECT_EQ(
      moved_in_layer(plan, Axis::tp, Phase::forward),
      (std::vector<Moved>{
          {all_gather, kOwn}, {reduce_scatter, kOwn}, {all_gather, kOwn}, {reduce_scatter, kOwn}}));
  // Both halves: the output's gradient, the saved rows, the input's gradient.
  EXPECT_EQ(moved_in_layer(plan, Axis::tp, Phase::backward),
            (std::vector<Moved>{{all_gather, kOwn},
                                {all_gather, kOwn},
                                {reduce_scatter, kOwn},
                                {all_gather, kOwn},
                                {all_gather, kOwn},
                                {reduce_scatter, kOwn}}));
  const EnginePlan whole = plan_of(kMegatron, config, engine_options({"sequence_parallel=false"}));
  const std::vector<Moved> sums(2, {all_reduce, kLength * 1024});
  EXPECT_EQ(moved_in_layer(whole, Axis::tp, Phase::forward), sums);
  EXPECT_EQ(moved_in_layer(whole, Axis::tp, Phase::backward), sums);
}

TEST(McoreContext, ExchangesWhatItsTypeSays) {
  using enum CollectiveKind;
  const auto moved = [](const char* comm, Phase phase) {
    return moved_in_layer(plan_of(kMegatron, shared_config(shared_llama(1), 1, 4),
                                  engine_options({std::string("cp_comm_type=") + comm})),
                          Axis::cp, phase);
  };
  constexpr std::int64_t kKeys = kLength / 4 * 8 * 64;
  constexpr std::int64_t kQueries = kLength / 4 * 16 * 64;
  // Three sends of keys and values; then these, twice with gradients, and gradients alone. A send is
  // priced as a gather among four: three parts reach each rank.
  const auto sends = [](std::vector<std::int64_t> pairs) {
    std::vector<Moved> all;
    for (const std::int64_t pair : pairs) all.emplace_back(all_gather, (pair * 2 * kKeys + 2) / 3);
    return all;
  };
  EXPECT_EQ(moved("p2p", Phase::forward), sends({1, 1, 1}));
  EXPECT_EQ(moved("p2p", Phase::backward), sends({1, 2, 2, 1}));
  EXPECT_EQ(moved("all_gather", Phase::forward),
            (std::vector<Moved>{{all_gather, kKeys}, {all_gather, kKeys}}));
  EXPECT_EQ(moved("all_gather", Phase::backward), (std::vector<Moved>{{all_gather, kKeys},
                                                                      {all_gather, kKeys},
                                                                      {reduce_scatter, kKeys},
                                                                      {reduce_scatter, kKeys}}));
  const Moved queries{all_to_all, kQueries / 4};
  const Moved keys{all_to_all, kKeys / 4};
  EXPECT_EQ(moved("a2a", Phase::forward), (std::vector<Moved>{queries, keys, keys, queries}));
  EXPECT_EQ(moved("a2a", Phase::backward), (std::vector<Moved>{queries, queries, keys, keys}));
}

TEST(McoreContext, ComputesAnEqualShareOfAllPairs) {
  const auto flops = [](std::int64_t cp, const char* comm) {
    double sum = 0;
    const EnginePlan plan = plan_of(kMegatron, shared_config(shared_llama(1), 1, cp),
                                    engine_options({std::string("cp_comm_type=") + comm}));
    for (const Op& op : plan.program.find_plan(PlanRole::train)->segments.front().ops)
      if (const auto* kernel = std::get_if<Kernel>(&op.body))
        if (kernel->kind == KernelKind::attention_forward)
          sum += static_cast<double>(kernel->flops);
    return sum;
  };
  const EnginePlan whole = plan_of(kMegatron, test::config_of(shared_llama(1), kLength));
  double all = 0;
  for (const Op& op : whole.program.find_plan(PlanRole::train)->segments.front().ops)
    if (const auto* kernel = std::get_if<Kernel>(&op.body))
      if (kernel->kind == KernelKind::attention_forward) all += static_cast<double>(kernel->flops);
  for (const char* comm : {"p2p", "all_gather", "a2a"})
    for (const std::int64_t cp : {2, 4, 8})
      EXPECT_DOUBLE_EQ(flops(cp, comm) * static_cast<double>(cp), all) << comm;
}

TEST(McoreTensor, HasAPartOfTheWeightsOverRanksThatShareThem) {
  // With tp 4: an embedding and a head of 32,256 / 4 = 8064 rows (a multiple of 128), a quarter of a
  // layer's matrices, and whole norms; the optimizer's shards are over data ranks and cp.
  constexpr std::int64_t kCut = 1024 * (2 * 8064 + (1024 + 2 * 512 + 1024 + 3 * 4096) / 4);
  const EnginePlan plan = plan_of(kMegatron, shared_config(shared_llama(1), 4, 2));
  const std::int64_t elements = kCut + 3 * 1024 + plan.padding;
  EXPECT_EQ(test::bytes_of(plan, "weights"), elements * 2);
  EXPECT_LT(plan.padding, 2000);
  std::int64_t main = 0;
  for (const Buffer& buffer : plan.program.buffers)
    if (buffer.persistent && buffer.name.ends_with("_main")) main += buffer.size.value;
  EXPECT_NEAR(static_cast<double>(main), static_cast<double>(elements) / 4 * 4, 4000);
}

TEST(McoreParallelConfig, NamesAxisAndRule) {
  const auto error = [](const PlanConfig& config, const std::vector<std::string>& options = {}) {
    const auto own = engine_config(kMegatron, config, engine_options(options));
    return own ? std::string() : own.error().message();
  };
  EXPECT_EQ(error(shared_config(shared_llama(1), 16, 1)),
            "--tp: expected a number of ranks that divides the 8 key-value heads, got 16");
  EXPECT_EQ(
      error(shared_config(shared_llama(1), 4, 4, 1), {"cp_comm_type=a2a"}),
      "--cp: expected a number of ranks that divides the 8 key-value heads (a2a: --cp times --tp), "
      "got 16");
  PlanConfig odd = shared_config(shared_llama(1), 2, 2);
  odd.seq_len = 4092;
  EXPECT_EQ(error(odd),
            "--cp: expected a multiple of 8 tokens of a sequence (--seq-len), got 4092");
  EXPECT_EQ(error(shared_config(shared_gpt(1), 1, 2)),
            "--cp: --engine mcore cannot be predicted with learned positions yet; take --cp 1");
  EXPECT_EQ(error(shared_config(shared_llama(1), 1, 2), {"sequence_parallel=false"}),
            "--engine-option: sequence_parallel needs --tp 2 or more");
}

RC_GTEST_PROP(McoreParallelProperty, FreesWhatItAllocates, ()) {
  const std::int64_t tp = test::pick({1, 2, 4});
  const std::int64_t cp = test::pick({1, 2, 4});
  PlanConfig config = shared_config(shared_llama(test::pick({1, 3})), tp, cp, test::pick({1, 2}));
  config.model.heads = 32;
  config.model.kv_heads = test::pick({16, 32});
  config.model.qk_norm = test::pick({0, 1}) == 1;
  config.model.tied_embeddings = test::pick({0, 1}) == 1;
  config.micro_batch = test::pick({1, 2});
  config.microbatches = test::pick({1, 3});
  if (test::pick({0, 1}) == 1) config.recompute.kind = Recompute::full;
  std::vector<std::string> options;
  if (tp > 1 && test::pick({0, 1}) == 1) options.emplace_back("sequence_parallel=false");
  if (cp > 1)
    options.push_back("cp_comm_type=" +
                      std::string(to_string(*rc::gen::element(
                          ContextComm::p2p, ContextComm::all_gather, ContextComm::a2a))));
  if (test::pick({0, 1}) == 1) options.emplace_back("overlap_grad_reduce=false");
  if (test::pick({0, 1}) == 1) options.emplace_back("overlap_param_gather=false");
  test::check_balance(plan_of(*rc::gen::element(kMegatron, EngineKind::mcore_unfused_loss), config,
                              engine_options(options)));
}

// ---- torchtitan's models under FSDP2 --------------------------------------------------------

TEST(TitanTensor, MovesRowsBesideNothing) {
  using enum CollectiveKind;
  constexpr std::int64_t kOwn = kLength / 4 * 1024;
  for (const EngineKind engine : {EngineKind::fsdp2, EngineKind::fsdp2_compile}) {
    const EnginePlan plan = plan_of(engine, shared_config(shared_llama(1), 4, 1),
                                    engine_options({"--modules=torchtitan"}));
    const std::vector<Moved> rows{
        {all_gather, kOwn}, {reduce_scatter, kOwn}, {all_gather, kOwn}, {reduce_scatter, kOwn}};
    EXPECT_EQ(moved_in_layer(plan, Axis::tp, Phase::forward), rows);
    std::vector<Moved> back = moved_in_layer(plan, Axis::tp, Phase::backward);
    const Moved norm{all_reduce, 1024};
    EXPECT_EQ(std::erase(back, norm), 2U);
    EXPECT_EQ(back, rows);
  }
}

RC_GTEST_PROP(TitanTensorProperty, FreesWhatItAllocates, ()) {
  PlanConfig config = shared_config(shared_llama(test::pick({1, 3})), test::pick({2, 4, 8}), 1,
                                    test::pick({1, 2, 8}));
  config.micro_batch = test::pick({1, 2});
  config.microbatches = test::pick({1, 3});
  std::vector<std::string> options{"--modules=torchtitan"};
  if (test::pick({0, 1}) == 1)
    config.recompute.kind = Recompute::full;
  else if (test::pick({0, 1}) == 1)
    options.emplace_back("--selective-ac=op");
  test::check_balance(plan_of(*rc::gen::element(EngineKind::fsdp2, EngineKind::fsdp2_compile,
                                                EngineKind::fsdp2_compile_loss),
                              config, engine_options(options)));
}

}  // namespace
}  // namespace mfsdp
