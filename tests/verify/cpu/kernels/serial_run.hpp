// Runs a plan of one rank op by op in host order, on plain memory at the plan's offsets: the
// smallest executor there is. Fresh bytes hold NaN, so that a read of unwritten bytes shows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/runtime/rope_table.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::test {

class SerialRun {
 public:
  explicit SerialRun(const Program& program) : program_(program) {
    settings_.program = &program;
    for (const Pool& pool : program.pools)
      pools_.emplace_back(new std::byte[static_cast<std::size_t>(pool.height.value + 256)]);
    // All but the GEMM workspace, whose 32 MiB would cost more than a small model's steps.
    for (const Buffer& buffer : program.buffers)
      if (buffer.persistent && buffer.name != "gemm_workspace")
        std::fill_n(bytes(buffer), buffer.size.value, kPoison);
    if (find("rope_table") != nullptr) {
      const auto table = make_rope_table(program.config.model, program.config.seq_len);
      std::copy(table.begin(), table.end(), data<float>("rope_table"));
    }
    if (find("local_rope_table") != nullptr) {
      const auto local = make_rope_table(program.config.model, program.config.seq_len, true);
      std::copy(local.begin(), local.end(), data<float>("local_rope_table"));
    }
    for (const Buffer& buffer : program.buffers)
      if (buffer.category == Category::optimizer_state)
        std::memset(bytes(buffer), 0, static_cast<std::size_t>(buffer.size.value));
  }

  [[nodiscard]] const Buffer* find(const std::string& name) const {
    const auto found = std::ranges::find(program_.buffers, name, &Buffer::name);
    return found == program_.buffers.end() ? nullptr : &*found;
  }
  std::byte* bytes(const Buffer& buffer) {
    std::byte* pool = pools_[buffer.pool.value].get();
    return pool + (256 - reinterpret_cast<std::uintptr_t>(pool) % 256) % 256 + buffer.offset.value;
  }
  template <class T>
  T* data(const std::string& name) {
    return reinterpret_cast<T*>(bytes(*find(name)));
  }

  /// Runs a plan once. `input` fills "pinned_tokens" for each microbatch, counted from 0.
  void run(const std::string& plan, std::int64_t step,
           const std::function<void(std::int32_t*, std::int64_t)>& input) {
    const StepBlock block = make_step_block(step, 1e-2, settings_.optimizer);
    std::memcpy(data<std::byte>("pinned_step_block"), &block, sizeof block);
    std::int64_t microbatch = 0;
    for (const Segment& segment : program_.find_plan(plan)->segments)
      for (std::int64_t i = 0; i < segment.repeat; ++i)
        for (const Op& op : segment.ops) {
          if (op.name == "tokens.h2d") input(data<std::int32_t>("pinned_tokens"), microbatch++);
          run(op, step);
        }
  }

 private:
  static constexpr std::byte kPoison{0xff};

  void run(const Op& op, std::int64_t step) {
    if (const auto* acquire = std::get_if<Acquire>(&op.body)) {
      const Buffer& buffer = program_.buffers[acquire->buffer.value];
      std::fill_n(bytes(buffer), buffer.size.value, kPoison);
    } else if (const auto* copy = std::get_if<Copy>(&op.body)) {
      std::memcpy(resolve(copy->output), resolve(copy->input),
                  static_cast<std::size_t>(copy->input.touched_bytes()));
    } else if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
      run(op, *kernel, step);
    } else {
      ASSERT_NE(op.kind(), OpKind::collective) << "one rank alone has no collectives";
    }
  }

  void run(const Op& op, const Kernel& kernel, std::int64_t step) {
    std::vector<std::vector<std::int64_t>> strides;
    for (const Operand& operand : kernel.operands) strides.push_back(strides_of(operand));
    std::vector<OperandView> views;
    for (std::size_t i = 0; i < strides.size(); ++i) {
      const Operand& operand = kernel.operands[i];
      views.push_back({.role = operand.role,
                       .access = operand.access,
                       .data = resolve(operand),
                       .dtype = operand.dtype,
                       .shape = operand.shape,
                       .strides = strides[i]});
    }
    const auto ran = run_kernel(
        {.kernel = &kernel, .operands = views, .group = op.group, .rank = 0, .step = step},
        settings_);
    ASSERT_TRUE(ran) << op.name << ": " << ran.error().message();
  }

  std::byte* resolve(const Operand& operand) {
    return bytes(program_.buffers[operand.buffer.value]) + operand.offset;
  }
  static std::vector<std::int64_t> strides_of(const Operand& operand) {
    if (!operand.strides.empty()) return operand.strides;
    std::vector<std::int64_t> strides(operand.shape.size(), 1);
    for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * operand.shape[i];
    return strides;
  }

  const Program& program_;
  KernelSettings settings_;
  std::vector<std::unique_ptr<std::byte[]>> pools_;
};

}  // namespace mfsdp::test
