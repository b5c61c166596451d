// Every kernel of real plans has a launch on CUDA. There is no GPU: addresses are invented, and
// kernels that need a library's handle or memory fail only after their operands are read.
#include "gpu_backend/cuda/kernel_binder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>

#include "core/model/hf_config.hpp"
#include "core/runtime/bound_plan.hpp"
#include "core/schedule/build.hpp"

namespace mfsdp::cuda {
namespace {

PlanConfig configuration(const std::string& model) {
  const auto models = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models";
  PlanConfig config;
  config.model = load_model(model, models).value().shape;
  config.mesh = data_parallel_mesh(1, 2);
  config.seq_len = 128;
  config.microbatches = 2;
  return config;
}

/// As far as a machine without a GPU gets.
bool needs_a_gpu(const Error& error) {
  constexpr std::array kCalls{"cudaMalloc", "cublasLt",   "cudnn",
                              "cudaMemset", "cudaMemcpy", "cudaGetDevice"};
  const std::string message = error.message();
  return std::ranges::any_of(
      kCalls, [&](const char* call) { return message.find(call) != std::string::npos; });
}

std::set<KernelKind> bind_all(const Program& program) {
  PoolBases bases;
  for (std::size_t i = 0; i < program.pools.size(); ++i)
    bases.push_back(
        reinterpret_cast<std::byte*>(std::uintptr_t{0x700000000000} + (std::uintptr_t{i} << 40U)));
  PlanBinder plans(program, bases, 1);
  KernelBinder binder({.program = &program, .optimizer = {}}, {});
  std::set<KernelKind> kinds;
  for (const Plan& plan : program.plans) {
    const BoundPlan bound = plans.bind(plan).value();
    for (const BoundList& list : bound.lists)
      for (const BoundOp& op : list.ops) {
        const auto* kernel = std::get_if<Kernel>(&op.op->body);
        if (kernel == nullptr) continue;
        kinds.insert(kernel->kind);
        const auto launch = binder.bind({.kernel = kernel,
                                         .operands = op.operands,
                                         .group = op.op->group,
                                         .rank = 1,
                                         .step = 0},
                                        nullptr);
        EXPECT_TRUE(launch ? bool(*launch) : needs_a_gpu(launch.error()))
            << op.op->name << ": " << (launch ? "no launch" : launch.error().message());
      }
  }
  return kinds;
}

TEST(KernelBinder, EveryKernelOfAPlanHasALaunch) {
  std::set<KernelKind> kinds;
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim_grads_params})
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32})
      for (const Optimizer optimizer : {Optimizer::adamw, Optimizer::sgd, Optimizer::muon}) {
        PlanConfig config = configuration("llama_nano");
        config.strategy = strategy;
        config.param_dtype = dtype;
        config.optimizer = optimizer;
        if (dtype == DType::fp16) config.loss_scale = {.num = 65'536};
        kinds.merge(bind_all(build_program(config, {}).value()));
      }
  for (const StateDtype kept : {StateDtype::full, StateDtype::bf16, StateDtype::blockwise8}) {
    PlanConfig config = configuration("llama_nano");
    config.optimizer = Optimizer::lion;
    config.state_dtype = kept;
    kinds.merge(bind_all(build_program(config, {}).value()));
  }
  PlanConfig narrow = configuration("llama_nano");  // another reduction dtype
  narrow.strategy = Strategy::no_shard;
  narrow.reduce_dtype = DType::bf16;
  kinds.merge(bind_all(build_program(narrow, {}).value()));
  narrow.param_dtype = narrow.reduce_dtype = DType::fp16;
  kinds.merge(bind_all(build_program(narrow, {}).value()));
  PlanConfig dealt = configuration("llama_nano");  // gradients are exchanged, then summed
  dealt.reduce = Transport::copy_engine;
  kinds.merge(bind_all(build_program(dealt, {}).value()));
  // Norms of heads, biases, GeGLU, layer norms and positions, norms of all heads.
  for (const char* model : {"qwen3_0.6b", "qwen2.5_0.5b", "gemma_2b", "gpt2", "olmo2_1b"})
    kinds.merge(bind_all(build_program(configuration(model), {}).value()));
  // Experts: sizes for each version of their grouped GEMMs.
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32})
    for (const char* model :
         {"moe_nano", "olmoe_1b_7b", "gpt_oss_nano", "mla_nano", "qwen1.5_moe_a2.7b"}) {
      PlanConfig config = configuration(model);
      config.param_dtype = dtype;
      kinds.merge(bind_all(build_program(config, {}).value()));
    }
  PlanConfig apart = configuration("moe_nano");  // expert-parallel
  apart.expert_parallel = 2;
  apart.mesh = with_expert_grid(apart.mesh, 2);
  kinds.merge(bind_all(build_program(apart, {}).value()));
  PlanConfig shared = configuration("llama_nano");  // sequences, by ranks of cp
  shared.mesh.resize(Axis::cp, 2);
  for (const ContextExchange exchange :
       {ContextExchange::a2a, ContextExchange::all_gather, ContextExchange::p2p})
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      shared.cp_comm = exchange;
      shared.param_dtype = dtype;
      shared.loss_scale = {.num = dtype == DType::fp16 ? 65'536 : 0};
      kinds.merge(bind_all(build_program(shared, {}).value()));
    }
  PlanConfig split = configuration("llama_nano");  // blocks and vocabulary, by ranks of tp
  split.mesh.resize(Axis::tp, 2);
  kinds.merge(bind_all(build_program(split, {}).value()));
  split = configuration("gpt_oss_nano");  // biases of sums
  split.mesh.resize(Axis::tp, 2);
  kinds.merge(bind_all(build_program(split, {}).value()));
  PlanConfig in_fp8 = configuration("llama_nano");
  in_fp8.fp8 = Fp8Recipe::current;
  kinds.merge(bind_all(build_program(in_fp8, {}).value()));
  in_fp8.fp8_gather = true;  // casts of weights, which it transposes
  kinds.merge(bind_all(build_program(in_fp8, {}).value()));
  in_fp8.fp8_gather = false;
  in_fp8.fp8 = Fp8Recipe::delayed;
  kinds.merge(bind_all(build_program(in_fp8, {}).value()));
  in_fp8 = configuration("llama_tiny");
  in_fp8.fp8 = Fp8Recipe::blockwise;
  kinds.merge(bind_all(build_program(in_fp8, {}).value()));
  for (const KernelKind on_cpu_alone : {KernelKind::join_key_parts, KernelKind::split_key_parts})
    kinds.insert(on_cpu_alone);
  // All of the recipe's kinds: none is left out because no plan here has it.
  kinds.insert(KernelKind::dequantise);  // predicted; no executor has it
  for (std::size_t kind = 0; kind < Names<KernelKind>::values.size(); ++kind)
    EXPECT_TRUE(kinds.contains(static_cast<KernelKind>(kind)))
        << Names<KernelKind>::values.at(kind);
}

TEST(KernelBinder, WhatAKernelCannotTakeIsAnError) {
  PlanConfig config = configuration("llama_nano");
  config.param_dtype = config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp64;
  const Program program = build_program(config, {}).value();
  PlanBinder plans(program, PoolBases(program.pools.size(), nullptr), 0);
  const BoundPlan bound = plans.bind(program.plans.front()).value();
  KernelBinder binder({.program = &program, .optimizer = {}}, {});
  for (const BoundOp& op : bound.lists.front().ops) {
    const auto* kernel = std::get_if<Kernel>(&op.op->body);
    if (kernel == nullptr || kernel->kind != KernelKind::swiglu_forward) continue;
    const auto launch = binder.bind(
        {.kernel = kernel, .operands = op.operands, .group = op.op->group, .rank = 0, .step = 0},
        nullptr);
    ASSERT_FALSE(launch);
    EXPECT_EQ(launch.error().message(),
              "kernel swiglu_forward: operand gate_up: expected bf16, fp16 or fp32, got fp64");
    return;
  }
  FAIL() << "expected swiglu_forward in the plan";
}

}  // namespace
}  // namespace mfsdp::cuda
