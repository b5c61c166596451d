#include "verify/cpu/kernels/run_kernel.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/runtime/scalar.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp {
namespace {

/// A kernel with memory of its own for each operand.
struct Call {
  struct Tensor {
    std::string role;
    Access access;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;
    std::vector<std::byte> bytes;
  };
  Kernel kernel;
  std::optional<GroupId> group;
  std::vector<Tensor> tensors;

  Tensor& add(std::string role, Access access, DType dtype, std::vector<std::int64_t> shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    const auto size = static_cast<std::size_t>(product_of(shape) * size_of(dtype));
    tensors.push_back({std::move(role), access, dtype, std::move(shape), std::move(strides),
                       std::vector<std::byte>(size)});
    return tensors.back();
  }
  Tensor& at(const std::string& role) { return *std::ranges::find(tensors, role, &Tensor::role); }

  Result<void> run(const KernelSettings& settings, std::int64_t rank = 0) {
    std::vector<OperandView> views;
    for (Tensor& tensor : tensors)
      views.push_back({.role = tensor.role,
                       .access = tensor.access,
                       .data = tensor.bytes.data(),
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .strides = tensor.strides});
    return run_kernel({.kernel = &kernel, .operands = views, .group = group, .rank = rank},
                      settings);
  }
};

/// input[2, 3] weight[4, 3]^T, in bf16.
Call linear() {
  Call call;
  call.kernel.kind = KernelKind::gemm;
  call.kernel.attributes = {{"beta", 0}, {"k", 3}, {"kind", 0}, {"m", 2}, {"n", 4}};
  call.add("input", Access::read, DType::bf16, {2, 3});
  call.add("weight", Access::read, DType::bf16, {4, 3});
  call.add("output", Access::write, DType::bf16, {2, 4});
  call.add("workspace", Access::scratch, DType::uint8, {1024});
  return call;
}

Call lookup() {
  Call call;
  call.kernel.kind = KernelKind::embedding_forward;
  call.kernel.attributes = {{"cols", 2}, {"rows", 3}};
  call.add("tokens", Access::read, DType::int32, {3});
  call.add("weight", Access::read, DType::bf16, {5, 2});
  call.add("output", Access::write, DType::bf16, {3, 2});
  return call;
}

TEST(RunKernel, SaysInOneLineWhatIsWrong) {
  const Program program;
  const KernelSettings settings{.program = &program};
  EXPECT_TRUE(linear().run(settings));
  const auto complaint = [&](Call call, const std::function<void(Call&)>& spoil) {
    spoil(call);
    const auto ran = call.run(settings);
    return ran ? std::string("ran") : ran.error().message();
  };
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.tensors.erase(c.tensors.begin() + 1); }),
            "kernel gemm: operand weight: expected this operand");
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.at("weight").dtype = DType::fp32; }),
            "kernel gemm: operand weight: expected bf16 [4, 3], got fp32 [4, 3]");
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.at("output").shape = {8}; }),
            "kernel gemm: operand output: expected bf16 [2, 4], got bf16 [8]");
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.at("output").access = Access::read; }),
            "kernel gemm: operand output: expected an operand that may be written, got one that is "
            "read");
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.at("input").strides = {4, 1}; }),
            "kernel gemm: operand input: expected contiguous elements");
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.at("input").dtype = DType::int64; }),
            "kernel gemm: operand input: expected bf16, fp16, fp32 or fp64, got int64");
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.kernel.attributes.pop_back(); }),
            "kernel gemm: expected an attribute n");
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.kernel.attributes[2].value = {.num = 9}; }),
            "kernel gemm: attribute kind: expected 0, 1 or 2, got 9");
  // Needed are 2 * 3 + 3 * 4 + 2 * 4 floats; with less, the GEMM allocates memory of its own.
  EXPECT_EQ(complaint(linear(), [](Call& c) { c.at("workspace").shape = {103}; }), "ran");
  EXPECT_EQ(complaint(lookup(), [](Call& c) { c.at("tokens").bytes[4] = std::byte{5}; }),
            "kernel embedding_forward: operand tokens: expected ids from 0 to 4, got 5 at 1");
}

/// Two ranks' parts of one element, in bf16.
Call sum_of_ranks(DType to, bool adds) {
  Call call;
  call.kernel.kind = KernelKind::sum_ranks;
  call.kernel.attributes = {{"beta", adds ? 1 : 0}, {"count", 1}, {"ranks", 2}};
  auto* parts =
      reinterpret_cast<Bf16*>(call.add("input", Access::read, DType::bf16, {2, 1}).bytes.data());
  parts[0] = narrow<Bf16>(1);
  parts[1] = narrow<Bf16>(0x1p-8F);
  call.add("output", adds ? Access::read_write : Access::write, to, {1});
  return call;
}

// 1 + 2^-8 needs nine bits: bf16, which has eight, rounds it to 1, the nearest even one.
TEST(RunKernel, SumsOfRanksAreRoundedOnce) {
  const Program program;
  const KernelSettings settings{.program = &program};
  Call wide = sum_of_ranks(DType::fp32, false);
  ASSERT_TRUE(wide.run(settings));
  EXPECT_EQ(*reinterpret_cast<float*>(wide.at("output").bytes.data()), 1.00390625F);
  Call narrow_sum = sum_of_ranks(DType::bf16, false);
  ASSERT_TRUE(narrow_sum.run(settings));
  EXPECT_EQ(widen(*reinterpret_cast<Bf16*>(narrow_sum.at("output").bytes.data())), 1);
  // A microbatch of 2^-8: 1 + 2^-8 + 2^-8 = 1 + 2^-7 is a bf16; rounded in between it would be 1.
  Call adds = sum_of_ranks(DType::bf16, true);
  *reinterpret_cast<Bf16*>(adds.at("output").bytes.data()) = narrow<Bf16>(0x1p-8F);
  ASSERT_TRUE(adds.run(settings));
  EXPECT_EQ(widen(*reinterpret_cast<Bf16*>(adds.at("output").bytes.data())), 1.0078125F);
  Call other = sum_of_ranks(DType::fp32, false);
  other.kernel.attributes[2].value = {.num = 3};
  EXPECT_EQ(other.run(settings).error().message(),
            "kernel sum_ranks: operand input: expected bf16 [3, 1], got bf16 [2, 1]");
}

/// Runs each rank's update of a unit with gradients that depend on the element alone, and returns
/// the whole group's weights by element.
std::vector<float> updated_weights(const Program& program,
                                   const NormReport& norm = {.norm = 4, .clip_factor = 0.5}) {
  const Mesh& mesh = program.config.mesh;
  const std::int64_t elements = program.groups[1].elements;
  const KernelSettings settings{.program = &program, .optimizer = {.weight_decay = 0.5}};
  const StepBlock block = make_step_block(0, 0.01, settings.optimizer);
  const LossReport loss{.mean_loss = 1, .tokens = 4, .inverse_tokens = 0.25};
  const Op* update = nullptr;
  for (const Op& op : program.find_plan(PlanRole::train)->segments.back().ops)
    if (op.name == fmt::format("layers.0.{}", to_string(program.config.optimizer))) update = &op;
  const auto& kernel = std::get<Kernel>(update->body);
  const std::int64_t slice = kernel.attribute("elements");
  std::vector<float> weights(static_cast<std::size_t>(elements));
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    Call call;
    call.kernel = kernel;
    for (const Operand& operand : kernel.operands)
      call.add(operand.role, operand.access, operand.dtype, operand.shape);
    // Slices are in the order (shard, outer), as weights are gathered along the outer axis first.
    const std::int64_t pieces = elements / slice;
    std::int64_t piece = pieces > 1 ? rank % mesh.size(Axis::dp_shard) : 0;
    if (pieces > mesh.size(Axis::dp_shard))
      piece = piece * mesh.size(Axis::dp_outer) + rank / mesh.size(Axis::dp_shard);
    const std::int64_t begin = piece * slice;
    const auto values = [&](const char* role) {
      return reinterpret_cast<float*>(call.at(role).bytes.data());
    };
    for (std::int64_t i = 0; i < slice; ++i) {
      values("grad")[i] = static_cast<float>((begin + i) % 7 - 3);
      values("weight")[i] = static_cast<float>((begin + i) % 5 + 1);
    }
    std::memcpy(call.at("step_block").bytes.data(), &block, sizeof block);
    write_report(loss, values("loss"));
    write_report(norm, values("norm"));
    call.group = update->group;
    const auto ran = call.run(settings, rank);
    EXPECT_TRUE(ran) << ran.error().message();
    std::copy_n(values("weight"), slice, weights.begin() + begin);
  }
  return weights;
}

/// Whatever slice a rank has, an element decays if its parameter is a matrix.
TEST(RunKernel, EveryRankUpdatesItsSliceAlike) {
  PlanConfig config = test::small_config(1, 1);
  config.param_dtype = DType::fp32;
  for (const Mesh& mesh :
       {data_parallel_mesh(1, 1), data_parallel_mesh(1, 4), data_parallel_mesh(2, 2)})
    for (const Strategy outer : {Strategy::no_shard, Strategy::optim})
      for (const Strategy strategy : {Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                      Strategy::optim_grads_params}) {
        if (outer == Strategy::optim &&
            (mesh.size(Axis::dp_outer) == 1 || strategy != Strategy::optim_grads_params))
          continue;
        config.strategy = strategy;
        config.outer_strategy = outer;
        config.mesh = mesh;
        const auto program = build_program(config, {});
        ASSERT_TRUE(program);
        const std::vector<float> weights = updated_weights(*program);
        for (const PlacedParameter& parameter : program->groups[1].parameters)
          for (std::int64_t i = 0; i < parameter.elements(); ++i) {
            const std::int64_t at = parameter.offset + i;
            const double before = static_cast<double>(at % 5 + 1);
            // The first step of Adam goes by the rate against the gradient's sign.
            const std::int64_t sign = (at % 7 > 3) - (at % 7 < 3);
            const double expected =
                before * (parameter.decay ? 1 - 0.01 * 0.5 : 1) - 0.01 * static_cast<double>(sign);
            ASSERT_NEAR(weights[static_cast<std::size_t>(at)], expected, 1e-5)
                << parameter.name << " at " << i;
          }
      }
}

TEST(RunKernel, AnUpdateWithoutAFiniteNormChangesNothing) {
  PlanConfig config = test::small_config(1, 1);
  config.param_dtype = DType::fp32;
  for (const Optimizer optimizer : {Optimizer::adamw, Optimizer::lion, Optimizer::sgd}) {
    config.optimizer = optimizer;
    const auto program = build_program(config, {});
    ASSERT_TRUE(program);
    const std::vector<float> weights = updated_weights(*program, {.norm = 4, .non_finite = 1});
    for (std::size_t i = 0; i < weights.size(); ++i)
      ASSERT_EQ(weights[i], static_cast<float>(i % 5 + 1));
  }
}

}  // namespace
}  // namespace mfsdp
