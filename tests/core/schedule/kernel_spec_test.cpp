// Compares the kernels of planned programs with the table of kernels.
#include "core/plan/kernel_spec.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

bool may_be(Access access, OperandUse use, bool adds) {
  switch (use) {
    case OperandUse::reads: return access == Access::read;
    case OperandUse::writes: return access == Access::write;
    case OperandUse::updates: return access == Access::read_write;
    case OperandUse::adds: return access == (adds ? Access::read_write : Access::write);
    case OperandUse::yields: return access == Access::read || access == Access::read_write;
    case OperandUse::scratch: return access == Access::scratch;
  }
  return false;
}

void expect_as_stated(const Op& op, const Kernel& kernel) {
  const KernelSpec* spec = spec_of(kernel);
  ASSERT_NE(spec, nullptr) << op.name;
  std::vector<std::string_view> attributes;
  for (const Attribute& attribute : kernel.attributes) attributes.emplace_back(attribute.name);
  for (const std::string_view name : spec->optional_attributes)
    if (std::ranges::find(attributes, name) != attributes.end())
      attributes.erase(std::ranges::find(attributes, name));
  EXPECT_EQ(attributes, spec->attributes) << op.name;
  EXPECT_EQ(kernel.flops, spec->flops == nullptr ? 0 : spec->flops(kernel)) << op.name;
  for (const OperandSpec& stated : spec->operands) {
    const auto found = std::ranges::find(kernel.operands, stated.role, &Operand::role);
    if (found == kernel.operands.end()) {
      EXPECT_TRUE(stated.optional) << op.name << ", " << stated.role;
      continue;
    }
    EXPECT_TRUE(may_be(found->access, stated.use, kernel.attribute("beta") != 0))
        << op.name << ", " << stated.role;
  }
}

/// Planned kernels have the attributes, the FLOPs and the accesses of the table.
TEST(KernelSpec, SaysWhatPlansHave) {
  for (const Family family :
       {Family::llama, Family::gpt2, Family::olmo2, Family::mixtral, Family::olmoe})
    for (const bool exotic : {false, true}) {
      PlanConfig config = test::small_config();
      config.model.qk_norm = exotic;
      config.model.qkv_bias = exotic;
      test::make_family(config.model, family);
      if (exotic && config.model.experts != 0) {
        config.model.normalised_routing = true;
        config.model.router_aux_loss = {1, 100};
        config.model.router_z_loss = {1, 1000};
      }
      config.optimizer = exotic ? Optimizer::muon : Optimizer::sgd;
      config.state_dtype = exotic ? StateDtype::blockwise8 : StateDtype::full;
      config.reduce = exotic ? Transport::nccl : Transport::copy_engine;
      config.recompute.kind = exotic ? Recompute::full : Recompute::selective;
      const Program program = build_program(config, {}).value();
      for (const Plan& plan : program.plans)
        for (const Segment& segment : plan.segments)
          for (const Op& op : segment.ops)
            if (const auto* kernel = std::get_if<Kernel>(&op.body)) expect_as_stated(op, *kernel);
    }
}

}  // namespace
}  // namespace mfsdp
