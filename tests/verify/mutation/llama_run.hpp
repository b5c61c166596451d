// Whole programs with real kernels on the CPU's machine: training, evaluation, training again, and
// what they leave behind.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "core/model/hf_config.hpp"
#include "tests/support/machine_run.hpp"
#include "tests/verify/cpu/oracle/training_step.hpp"

namespace mfsdp::test {

/// llama_nano as small as it goes: 16 tokens a sequence, two chunks of logits.
inline PlanConfig llama_nano(std::int64_t ranks, std::int64_t microbatches = 2) {
  PlanConfig config;
  config.model =
      load_model("llama_nano", std::string(MFSDP_SOURCE_DIR) + "/scenarios/models").value().shape;
  config.mesh = data_parallel_mesh(1, ranks);
  config.microbatches = microbatches;
  config.seq_len = 16;
  config.logits_chunk = 8;
  return config;
}

/// The host of a training loop: other tokens for every rank, microbatch and step, settings that
/// move the weights, and a hash of every report.
class LlamaHost {
 public:
  LlamaHost(const Program& program, std::int64_t rank)
      : batches_(random_batches(program, 7)), rank_(rank) {}

  Result<void> operator()(const BoundOp& copy, std::int64_t step, std::optional<Nanos> /*ended*/) {
    const bool to_device = std::get<Copy>(copy.op->body).kind == CopyKind::h2d;
    const OperandView& host = copy.operands[to_device ? 0 : 1];
    if (!to_device) {
      hear(host);
    } else if (host.dtype == DType::int32) {
      batches_(rank_, batch_++,
               {reinterpret_cast<std::int32_t*>(host.data),
                static_cast<std::size_t>(product_of(host.shape))});
    } else {
      const StepBlock block = make_step_block(step, 0.01, {});
      std::memcpy(host.data, &block,
                  std::min(sizeof block, static_cast<std::size_t>(product_of(host.shape))));
    }
    return {};
  }
  [[nodiscard]] std::uint64_t heard() const { return heard_; }

 private:
  void hear(const OperandView& report) {
    for_each_element(report, [&](const std::byte* element) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, element, sizeof bits);
      heard_ = mix(heard_, bits);
    });
  }

  Batches batches_;
  std::int64_t rank_;
  std::int64_t batch_ = 0;
  std::uint64_t heard_ = 0;
};

/// One rank's host: fills, trains, evaluates, trains, hashes.
inline Result<std::uint64_t> run_llama_rank(const Program& program, const Program& original,
                                            const Tensors& weights, std::int64_t rank,
                                            Backend& backend) {
  LlamaHost host(program, rank);
  MFSDP_LET(interpreter, Interpreter::create(program, backend, rank, std::ref(host)));
  RankState(program, *interpreter, rank).fill(weights);
  for (const auto& [plan, steps] : Itinerary{{"train", 2}, {"eval", 1}, {"train", 1}})
    MFSDP_TRY(interpreter->run(plan, steps));
  MFSDP_TRY(interpreter->finish());
  return mix(hash_state(original, *interpreter), host.heard());
}

/// One hash for each rank of all that a run leaves. `weights` are those of the unaltered program.
inline Result<States> run_llama(const Program& program, const Program& original,
                                const Tensors& weights, std::optional<std::uint64_t> chaos) {
  const KernelSettings kernels{.program = &program};
  MachineSettings settings;
  settings.kernel = [&kernels](const KernelCall& call) { return run_kernel(call, kernels); };
  settings.chaos = chaos;
  settings.poison = chaos.value_or(0) % 2 == 1;
  Machine machine(program, settings);
  States states(static_cast<std::size_t>(program.config.mesh.world_size()));
  MFSDP_TRY(machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MFSDP_LET(state, run_llama_rank(program, original, weights, rank, backend));
    states[static_cast<std::size_t>(rank)] = state;
    return {};
  }));
  return states;
}

}  // namespace mfsdp::test
