// Kernels that need scratch on a GPU get it from the plan, and a call without it is none the worse.
#include <gtest/gtest.h>

#include <map>
#include <span>

#include "core/recipe/recipe.hpp"
#include "core/runtime/bound_plan.hpp"
#include "core/runtime/calls/call_reader.hpp"
#include "core/runtime/calls/take_sums.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

template <class Call>
std::span<std::byte> workspace_of(const Result<Call>& call) {
  EXPECT_TRUE(call) << call.error().message();
  return call ? call->workspace : std::span<std::byte>();
}

std::span<std::byte> taken_workspace(const KernelCall& call) {
  using namespace kernels;
  switch (call.kernel->kind) {
    case KernelKind::attention_forward:
      return workspace_of(read_call<AttentionForward<Bf16>>(call));
    case KernelKind::attention_backward:
      return workspace_of(read_call<AttentionBackward<Bf16>>(call));
    case KernelKind::cross_entropy: return workspace_of(read_call<CrossEntropy<Bf16>>(call));
    case KernelKind::norm_partial: return workspace_of(take_norm_partial<float>(call));
    default: ADD_FAILURE(); return {};
  }
}

TEST(Workspace, IsTakenFromThePlan) {
  const Program program = build_program(test::small_config(2, 1), {}).value();
  PoolBases bases;
  std::vector<std::vector<std::byte>> memory;
  for (const Pool& pool : program.pools)
    bases.push_back(memory.emplace_back(static_cast<std::size_t>(pool.height.value)).data());
  PlanBinder binder(program, bases, 0);
  const BoundPlan plan = binder.bind(program.plans[0]).value();

  // 16 tokens of 2 heads of 4 over one key head, in bf16: 2 * 256 bytes
  const std::map<KernelKind, std::size_t> expected{
      {KernelKind::attention_forward, kGemmWorkspaceBytes},
      {KernelKind::attention_backward, 256 + 2 * 256},
      {KernelKind::cross_entropy, kGemmWorkspaceBytes},
      {KernelKind::norm_partial, kSumWorkspaceBytes}};
  std::map<KernelKind, int> seen;
  for (const BoundList& list : plan.lists)
    for (const BoundOp& op : list.ops) {
      const auto* kernel = std::get_if<Kernel>(&op.op->body);
      if (kernel == nullptr || !expected.contains(kernel->kind)) continue;
      KernelCall call{.kernel = kernel, .operands = op.operands};
      EXPECT_EQ(taken_workspace(call).size(), expected.at(kernel->kind)) << op.op->name;
      std::vector<OperandView> without = op.operands;
      std::erase_if(without, [](const OperandView& view) { return view.role == "workspace"; });
      call.operands = without;
      EXPECT_TRUE(taken_workspace(call).empty()) << op.op->name;
      ++seen[kernel->kind];
    }
  EXPECT_EQ(seen.size(), expected.size());
}

}  // namespace
}  // namespace mfsdp
