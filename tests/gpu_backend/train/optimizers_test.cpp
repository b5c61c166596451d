// Optimizers and the dtypes of their states. 50 steps of a small Llama on 1, 2 and 4 ranks give one
// result under every strategy, within a bound of a dense reference. The reference is in double and
// shares no code with the update kernels. Bounds are of |w - reference| / |reference - start|,
// norms over all weights; docs/reference/optimizers.md states them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <tuple>

#include "core/model/hf_config.hpp"
#include "core/runtime/step_report.hpp"
#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

using test::Counting;
using test::Told;
using test::Weights;

constexpr std::int64_t kSteps = 50;
constexpr std::int64_t kBatch = 4;  ///< sequences of a step

/// MFSDP_OPTIMIZERS=full: of llama_tiny, which takes minutes.
bool is_full_run() {
  const char* asked = std::getenv("MFSDP_OPTIMIZERS");
  return asked != nullptr && std::string_view(asked) == "full";
}

PlanConfig small_llama(Optimizer optimizer, StateDtype kept) {
  PlanConfig config;
  config.micro_batch = kBatch;
  config.param_dtype = DType::fp32;
  config.optimizer = optimizer;
  config.state_dtype = kept;
  config.seq_len = config.logits_chunk = 4;
  if (is_full_run()) {
    config.model = load_model("llama_tiny", test::kModels).value().shape;
    return config;
  }
  config.model.vocab = 40;
  config.model.hidden = 16;
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.head_dim = 8;
  config.model.intermediate = 24;
  config.model.max_seq_len = 64;
  return config;
}

Counting data_of(const PlanConfig& config) {
  Counting data;
  data.vocab = config.model.vocab;
  return data;
}

/// The algorithms of the papers, in double, with separate moments.
class DenseReference {
 public:
  explicit DenseReference(const Program& program, OptimizerSettings settings)
      : program_(program), settings_(settings) {}

  Result<void> update(const KernelCall& call) {
    const Group& its_group = program_.groups.at(call.group->value);
    if (its_group.optimizer == Optimizer::muon) return step_along(call, its_group);
    const auto view = [&](std::string_view role) -> const OperandView& {
      return *std::ranges::find(call.operands, role, &OperandView::role);
    };
    const auto* gradients = reinterpret_cast<const double*>(view("grad").data);
    auto* weights = reinterpret_cast<double*>(view("weight").data);
    StepBlock block;
    std::memcpy(&block, view("step_block").data, sizeof block);
    const double scale = scale_of(call);
    const Group& group = program_.groups.at(call.group->value);
    for (const PlacedParameter& parameter : group.parameters) {
      auto& [m, v] = moments_[parameter.name];
      m.resize(static_cast<std::size_t>(parameter.elements()));
      v.resize(m.size());
      const bool embeds = parameter.name.find("embed_tokens") != std::string::npos;
      const bool by_name = !program_.config.lr_scale.empty();
      const double rate = double{block.learning_rate} * (by_name && embeds ? 0.5 : 1);
      const bool decays = parameter.shape.size() == 2 && !(by_name && embeds);
      for (std::size_t i = 0; i < m.size(); ++i) {
        const auto at = static_cast<std::size_t>(parameter.offset) + i;
        const double decay = decays ? settings_.weight_decay : 0;
        weights[at] -= rate * (direction(gradients[at] * scale, m[i], v[i], block.step + 1) +
                               decay * weights[at]);
      }
    }
    return {};
  }

  /// In place of the kernel `momentum`: gradients as they are to be taken.
  Result<void> keep_gradient(const KernelCall& call) {
    const auto& grad = *std::ranges::find(call.operands, "grad", &OperandView::role);
    const Group& group = program_.groups.at(call.group->value);
    std::vector<double>& kept = gradients_[call.group->value];
    kept.assign(reinterpret_cast<const double*>(grad.data),
                reinterpret_cast<const double*>(grad.data) + group.elements);
    for (double& g : kept) g *= scale_of(call);
    return {};
  }

 private:
  static double scale_of(const KernelCall& call) {
    const auto numbers = [&](std::string_view role) {
      return reinterpret_cast<const float*>(
          std::ranges::find(call.operands, role, &OperandView::role)->data);
    };
    return double{read_report<LossReport>(numbers("loss")).inverse_tokens} *
           double{read_report<NormReport>(numbers("norm")).clip_factor};
  }

  /// Muon: Nesterov's momentum, and each of Hugging Face's matrices orthogonalised, 0.2 times the
  /// root of its longer side.
  Result<void> step_along(const KernelCall& call, const Group& group) {
    const auto at_role = [&](std::string_view role) {
      return std::ranges::find(call.operands, role, &OperandView::role)->data;
    };
    auto* weights = reinterpret_cast<double*>(at_role("weight"));
    StepBlock block;
    std::memcpy(&block, at_role("step_block"), sizeof block);
    const double rate = block.learning_rate;
    const ModelShape& model = program_.config.model;
    for (const PlacedParameter& parameter : group.parameters) {
      std::vector<std::int64_t> parts{parameter.shape[0]};
      if (parameter.role == ParameterRole::qkv)
        parts = {model.heads * model.head_dim, model.kv_heads * model.head_dim,
                 model.kv_heads * model.head_dim};
      if (parameter.role == ParameterRole::gate_up)
        parts = {model.intermediate, model.intermediate};
      std::int64_t at = parameter.offset;
      for (const std::int64_t rows : parts) {
        const std::int64_t cols = parameter.shape[1];
        const std::vector<double> step =
            orthogonal(momentum_of(group, at, rows * cols), rows, cols);
        const double factor = 0.2 * std::sqrt(std::max(rows, cols));
        for (std::int64_t i = 0; i < rows * cols; ++i) {
          double& weight = weights[at + i];
          weight -=
              rate * (factor * step[static_cast<std::size_t>(i)] + settings_.weight_decay * weight);
        }
        at += rows * cols;
      }
    }
    return {};
  }

  std::vector<double> momentum_of(const Group& group, std::int64_t begin, std::int64_t count) {
    const double mu = settings_.momentum;
    const std::vector<double>& gradient = gradients_.at(group.id.value);
    std::vector<double>& buffer = momentum_[{group.id.value, begin}];
    buffer.resize(static_cast<std::size_t>(count));
    std::vector<double> ahead(buffer.size());
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      const double g = gradient[static_cast<std::size_t>(begin) + i];
      buffer[i] = mu * buffer[i] + (1 - mu) * g;
      ahead[i] = (1 - mu) * g + mu * buffer[i];
    }
    return ahead;
  }

  /// By columns: X (a I + b B + c B^2) with B = X^T X, which is (a I + b A + c A^2) X of rows.
  static std::vector<double> orthogonal(const std::vector<double>& x, std::int64_t rows,
                                        std::int64_t cols) {
    const auto n = static_cast<std::size_t>(cols);
    const auto m = static_cast<std::size_t>(rows);
    if (m >= n) return orthogonal_by_columns(x, m, n);
    return transposed(orthogonal_by_columns(transposed(x, m, n), n, m), n, m);
  }

  static std::vector<double> transposed(const std::vector<double>& x, std::size_t rows,
                                        std::size_t cols) {
    std::vector<double> other(x.size());
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < cols; ++j) other[j * rows + i] = x[i * cols + j];
    return other;
  }

  static std::vector<double> orthogonal_by_columns(std::vector<double> x, std::size_t m,
                                                   std::size_t n) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    for (double& value : x) value /= std::sqrt(squares);
    for (int step = 0; step < 5; ++step) {
      std::vector<double> gram(n * n, 0), polynomial(n * n, 0), next(m * n, 0);
      for (std::size_t k = 0; k < m; ++k)
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t j = 0; j < n; ++j) gram[i * n + j] += x[k * n + i] * x[k * n + j];
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < n; ++k)
          for (std::size_t j = 0; j < n; ++j)
            polynomial[i * n + j] += 2.0315 * gram[i * n + k] * gram[k * n + j];
      for (std::size_t i = 0; i < n * n; ++i)
        polynomial[i] += (i % (n + 1) == 0 ? 3.4445 : 0) - 4.7750 * gram[i];
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t k = 0; k < n; ++k)
          for (std::size_t j = 0; j < n; ++j)
            next[i * n + j] += x[i * n + k] * polynomial[k * n + j];
      x = next;
    }
    return x;
  }

  double direction(double g, double& m, double& v, std::int64_t t) const {
    const double b1 = settings_.beta1;
    const double b2 = settings_.beta2;
    if (program_.config.optimizer == Optimizer::lion) {
      const double c = b1 * m + (1 - b1) * g;
      m = b2 * m + (1 - b2) * g;
      return c == 0 ? 0 : std::copysign(1, c);
    }
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, t));
    const double v_hat = v / (1 - std::pow(b2, t));
    return m_hat / (std::sqrt(v_hat) + settings_.epsilon);
  }

  const Program& program_;
  OptimizerSettings settings_;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> moments_;
  std::map<std::size_t, std::vector<double>> gradients_;                          ///< by group
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<double>> momentum_;  ///< and matrix
};

OptimizerSettings settings_of(const PlanConfig& config) {
  return {.beta2 = spec_of(config.optimizer).beta2};
}

Told train(
    const PlanConfig& config, std::int64_t steps, double rate,
    const std::function<void(MachineSettings&)>& machine = [](MachineSettings&) {}) {
  return test::train(build_program(config, {}).value(), steps, data_of(config),
                     {.inputs =
                          [&](TrainInputs& inputs) {
                            inputs.settings.optimizer = settings_of(config);
                            inputs.settings.learning_rate = {
                                .peak = rate, .minimum = rate / 10, .warmup = 2};
                          },
                      .machine =
                          [&](MachineSettings& settings) {
                            if (is_full_run()) settings.deadline = std::chrono::minutes(10);
                            machine(settings);
                          }});
}

Told train_reference(PlanConfig config, double rate) {
  config.state_dtype = StateDtype::full;
  config.param_dtype = config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp64;
  const Program program = build_program(config, {}).value();
  DenseReference reference(program, settings_of(config));
  const KernelSettings kernels{.program = &program, .optimizer = settings_of(config)};
  return train(config, kSteps, rate, [&](MachineSettings& settings) {
    settings.kernel = [&](const KernelCall& call) {
      switch (call.kernel->kind) {
        case KernelKind::momentum: return reference.keep_gradient(call);
        case KernelKind::newton_schulz: return Result<void>{};
        case KernelKind::update: return reference.update(call);
        default: return run_kernel(call, kernels);
      }
    };
  });
}

double distance(const Weights& a, const Weights& b) {
  double squares = 0;
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = double{values[i]} - double{b.at(name)[i]};
      squares += difference * difference;
    }
  return std::sqrt(squares);
}

std::string differing(const Weights& a, const Weights& b) {
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!test::same_bits(values[i], b.at(name)[i])) return fmt::format("{} at {}", name, i);
  return "";
}

/// Every way to hold the state on 1, 2 and 4 ranks.
std::vector<PlanConfig> everywhere(const PlanConfig& config) {
  std::vector<PlanConfig> all{config};
  for (const std::int64_t ranks : {2, 4})
    for (const Strategy strategy : {Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                    Strategy::optim_grads_params}) {
      PlanConfig& made = all.emplace_back(config);
      made.mesh = data_parallel_mesh(1, ranks);
      made.strategy = strategy;
      made.micro_batch = kBatch / ranks;
    }
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim}) {  // HSDP, HFSDP
    PlanConfig& made = all.emplace_back(all.back());
    made.mesh = data_parallel_mesh(2, 2);
    made.outer_strategy = outer;
  }
  return all;
}

std::string where_of(const PlanConfig& config) {
  return fmt::format("{} on {} x {}", to_string(config.strategy), config.mesh.size(Axis::dp_outer),
                     config.mesh.size(Axis::dp_shard));
}

/// `every`: of the ways that everywhere() lists.
void expect_near_reference(const PlanConfig& config, double rate, double bound,
                           std::size_t every = 1) {
  if (is_full_run()) {  // 256 columns in place of 16, and 3 million weights
    rate /= 10;
    bound = std::max(bound * 4, 1e-4);
  }
  const Told reference = train_reference(config, rate);
  ASSERT_TRUE(reference.end) << reference.end.error().message();
  const double learnt = is_full_run() ? 0.97 : 0.8;
  EXPECT_LT(reference.steps.back().loss, learnt * reference.steps.front().loss);
  const double moved = distance(train(config, 1, 0).weights, reference.weights);
  double worst = 0;
  std::map<std::tuple<std::int64_t, std::int64_t, Strategy>, Weights> by_mesh;
  const std::vector<PlanConfig> ways = everywhere(config);
  for (std::size_t i = 0; i < ways.size(); i += every) {
    const PlanConfig& each = ways[i];
    SCOPED_TRACE(where_of(each));
    const Told told = train(each, kSteps, rate);
    ASSERT_TRUE(told.end) << told.end.error().message();
    EXPECT_TRUE(told.allocated_as_planned);
    EXPECT_TRUE(told.torn.empty());
    const std::tuple mesh{each.mesh.size(Axis::dp_outer), each.mesh.size(Axis::dp_shard),
                          each.outer_strategy};
    EXPECT_EQ(differing(told.weights, by_mesh.try_emplace(mesh, told.weights).first->second), "");
    const double off = distance(told.weights, reference.weights) / moved;
    EXPECT_LE(off, bound) << "the weights are off by that part of their way";
    EXPECT_NEAR(told.steps.back().loss, reference.steps.back().loss,
                bound * reference.steps.front().loss);
    worst = std::max(worst, off);
  }
  ::testing::Test::RecordProperty("part_of_the_way", fmt::format("{:.2e}", worst));
}

TEST(Optimizers, AdamwIsTheReference) {
  expect_near_reference(small_llama(Optimizer::adamw, StateDtype::full), 1e-2, 1e-5, 4);
}

TEST(Optimizers, AdamwWithBf16StatesIsNearIt) {
  expect_near_reference(small_llama(Optimizer::adamw, StateDtype::bf16), 1e-2, 0.01);
}

TEST(Optimizers, AdamwWithStatesInBytesIsNearIt) {
  expect_near_reference(small_llama(Optimizer::adamw, StateDtype::blockwise8), 1e-2, 0.1);
}

TEST(Optimizers, LionIsTheReference) {
  expect_near_reference(small_llama(Optimizer::lion, StateDtype::full), 2e-3, 1e-2);
}

TEST(Optimizers, LionWithBf16StatesIsNearIt) {
  expect_near_reference(small_llama(Optimizer::lion, StateDtype::bf16), 2e-3, 0.15, 4);
}

TEST(Optimizers, LionWithStatesInBytesIsNearIt) {
  expect_near_reference(small_llama(Optimizer::lion, StateDtype::blockwise8), 2e-3, 0.25, 4);
}

/// Two blocks, so that there are rounds of two ranks, and of four ranks of which two have no block.
PlanConfig small_llama_of_two_blocks(StateDtype kept) {
  PlanConfig config = small_llama(Optimizer::muon, kept);
  if (!is_full_run()) config.model.layers = 2;
  return config;
}

TEST(Optimizers, MuonIsTheReference) {
  expect_near_reference(small_llama_of_two_blocks(StateDtype::full), 1e-2, 1e-4,
                        is_full_run() ? 5 : 1);
}

TEST(Optimizers, MuonWithBf16StatesIsNearIt) {
  expect_near_reference(small_llama_of_two_blocks(StateDtype::bf16), 1e-2, 0.1, 5);
}

TEST(Optimizers, RatesAndDecayAreThoseOfNames) {
  PlanConfig config = small_llama(Optimizer::adamw, StateDtype::full);
  config.lr_scale = {"embed_tokens=0.5", "o_proj=1"};
  config.no_decay = {"embed_tokens"};
  expect_near_reference(config, 1e-2, 1e-5, 4);
}

/// Scales do not depend on the ranks that hold the elements.
TEST(Optimizers, StatesInBytesAreTheSameBitsOnEveryMesh) {
  PlanConfig config = small_llama(Optimizer::adamw, StateDtype::blockwise8);
  config.exact_sums = true;
  std::optional<Weights> first;
  for (const PlanConfig& each : everywhere(config)) {
    SCOPED_TRACE(where_of(each));
    const Told told = train(each, 6, 1e-2);
    ASSERT_TRUE(told.end) << told.end.error().message();
    if (!first) first = told.weights;
    EXPECT_EQ(differing(told.weights, *first), "");
  }
}

}  // namespace
}  // namespace mfsdp
