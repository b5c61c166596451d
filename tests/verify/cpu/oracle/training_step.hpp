// One training step of a plan on the CPU's machine with given weights and tokens, and what it
// leaves behind: the summed loss and the gradient of every parameter, from wherever the strategy
// has put them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/runtime/interpreter.hpp"
#include "core/runtime/rope_table.hpp"
#include "core/runtime/scalar.hpp"
#include "core/runtime/step_block.hpp"
#include "core/runtime/step_report.hpp"
#include "core/shard/groups.hpp"
#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp::test {

/// Values by parameter name, in the parameter's own order.
using Tensors = std::map<std::string, Values>;

/// Fills token ids, then labels, of a rank's microbatch; after them positions where the plan masks
/// documents.
using Batches =
    std::function<void(std::int64_t rank, std::int64_t microbatch, std::span<std::int32_t>)>;

struct StepOutcome {
  double loss = 0;  ///< summed over all tokens of all ranks
  Tensors gradients;
};

/// Weights about as large as a trained model's: rows of length about 1; norms' weights, and for
/// want of anything better biases, about 1.
inline Tensors random_weights(const Program& program, std::uint32_t seed) {
  RandomValues random(seed);
  Tensors weights;
  for (const Group& group : program.groups)
    for (const PlacedParameter& parameter : group.parameters) {
      const auto columns = static_cast<double>(parameter.shape.back());
      Values values = random(parameter.elements(), parameter.decay ? 1 / std::sqrt(columns) : 0.2);
      if (!parameter.decay)
        for (double& value : values) value += 1;
      weights[parameter.name] = std::move(values);
    }
  return weights;
}

/// Random tokens and labels; every fifth label is ignored. Documents begin at every third token or
/// so.
inline Batches random_batches(const Program& program, std::uint32_t seed) {
  return [vocab = program.config.model.vocab, seed, masks = program.config.document_mask,
          seq_len = static_cast<std::size_t>(program.config.seq_len)](
             std::int64_t rank, std::int64_t microbatch, std::span<std::int32_t> all) {
    RandomValues random(seed + static_cast<std::uint32_t>(1000 * rank + microbatch));
    const std::span<std::int32_t> ids = all.first(masks ? all.size() / 3 * 2 : all.size());
    for (std::int32_t& id : ids) id = random.below(vocab);
    const std::span<std::int32_t> positions = all.subspan(ids.size());
    for (std::size_t t = 0; t < positions.size(); ++t)
      positions[t] = t % seq_len == 0 || random.below(3) == 0 ? 0 : positions[t - 1] + 1;
    for (std::size_t i = ids.size() / 2 + 1; i < ids.size(); i += 5) ids[i] = -100;
  };
}

inline double load(const std::byte* from, DType dtype, std::int64_t index) {
  double value = 0;
  with_floating(dtype, [&]<class T>(T) { value = widen(reinterpret_cast<const T*>(from)[index]); });
  return value;
}

inline void store(std::byte* to, DType dtype, std::int64_t index, double value) {
  with_floating(dtype, [&]<class T>(T) {
    reinterpret_cast<T*>(to)[index] = narrow<T>(static_cast<Real<T>>(value));
  });
}

/// One rank's view of a program's persistent buffers.
class RankState {
 public:
  RankState(const Program& program, const Interpreter& interpreter, std::int64_t rank)
      : program_(program), interpreter_(interpreter), rank_(rank) {}

  [[nodiscard]] const Buffer* find(const std::string& name) const {
    const auto found = std::ranges::find(program_.buffers, name, &Buffer::name);
    return found == program_.buffers.end() ? nullptr : &*found;
  }
  [[nodiscard]] std::byte* bytes(const Buffer& buffer) const {
    return interpreter_.buffer_bytes(buffer.id).data();
  }
  [[nodiscard]] const Buffer* find(const Group& group, const char* name) const {
    return find(program_.units[group.unit.value].name + (group.requires_grad ? "." : ".frozen.") +
                name);
  }

  /// Calls visit(parameter, index in it, index in the buffer) for what a buffer of `resident`
  /// elements of the group holds; one that is cut begins at the rank's own part.
  template <class Visit>
  void for_each(const Group& group, std::int64_t resident, const Visit& visit) const {
    std::int64_t begin = 0;
    if (resident < group.elements)
      begin += shard() * (group.elements / mesh().size(Axis::dp_shard));
    if (resident < group.elements / mesh().size(Axis::dp_shard)) begin += outer() * resident;
    for (const PlacedParameter& parameter : group.parameters)
      for (std::int64_t i = 0; i < parameter.elements(); ++i)
        if (const std::int64_t at = parameter.offset + i - begin; at >= 0 && at < resident)
          visit(parameter, i, at);
  }

  /// Weights, RoPE's table, and zeros in all other state.
  void fill(const Tensors& weights) const {
    for (const Buffer& buffer : program_.buffers)
      if (buffer.persistent && buffer.name != "gemm_workspace")
        std::memset(bytes(buffer), 0, static_cast<std::size_t>(buffer.size.value));
    for (const Group& group : program_.groups) {
      const ResidentElements resident = resident_elements(group, program_.config);
      const auto put = [&](const char* name, std::int64_t elements) {
        if (const Buffer* buffer = find(group, name))
          for_each(group, elements, [&](const PlacedParameter& parameter, auto i, auto at) {
            store(bytes(*buffer), buffer->dtype, at,
                  weights.at(parameter.name)[static_cast<std::size_t>(i)]);
          });
      };
      put("model_weight", resident.model_weight);
      put("main_weight", resident.main_weight);
    }
    if (const Buffer* angles = find("rope_table")) {
      const auto table = make_rope_table(program_.config.model, program_.config.seq_len);
      std::memcpy(bytes(*angles), table.data(), table.size() * sizeof(float));
    }
    if (const Buffer* local = find("local_rope_table")) {
      const auto turned = make_rope_table(program_.config.model, program_.config.seq_len, true);
      std::memcpy(bytes(*local), turned.data(), turned.size() * sizeof(float));
    }
  }

  /// Copies what this rank has of the reduced gradients. A gradient that lies whole on the rank is
  /// reduced in the part that the rank updates.
  void collect(Tensors& gradients) const {
    for (const Group& group : program_.groups) {
      if (!group.requires_grad) continue;
      const Buffer& buffer = *find(group, "main_grad");
      const std::int64_t whole = resident_elements(group, program_.config).main_grad;
      const std::int64_t shard_size = group.elements / mesh().size(Axis::dp_shard);
      const bool outer_cut = program_.config.outer_strategy == Strategy::optim;
      const std::int64_t size = outer_cut ? shard_size / mesh().size(Axis::dp_outer) : shard_size;
      const std::int64_t begin = shard() * shard_size + (outer_cut ? outer() * size : 0);
      for_each(group, whole, [&](const PlacedParameter& parameter, auto i, auto at) {
        const std::int64_t place = parameter.offset + i;
        if (place >= begin && place < begin + size)
          gradients.at(parameter.name)[static_cast<std::size_t>(i)] =
              load(bytes(buffer), buffer.dtype, at);
      });
    }
  }

 private:
  [[nodiscard]] const Mesh& mesh() const { return program_.config.mesh; }
  [[nodiscard]] std::int64_t shard() const { return rank_ % mesh().size(Axis::dp_shard); }
  [[nodiscard]] std::int64_t outer() const { return rank_ / mesh().size(Axis::dp_shard); }

  const Program& program_;
  const Interpreter& interpreter_;
  std::int64_t rank_;
};

/// The program on its machine, ready to run with any weights.
class TrainingStep {
 public:
  TrainingStep(const Program& program, Batches batches)
      : program_(program),
        kernels_{.program = &program},
        machine_(program, settings(kernels_)),
        batches_(std::move(batches)) {
    const auto ranks = static_cast<std::size_t>(program.config.mesh.world_size());
    interpreters_.resize(ranks);
    microbatch_.resize(ranks);
    check(machine_.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
      MFSDP_LET(interpreter, Interpreter::create(program_, backend, rank, host_work(rank)));
      interpreters_[static_cast<std::size_t>(rank)] = std::move(interpreter);
      return {};
    }));
  }

  StepOutcome run(const Tensors& weights) {
    run_plan(PlanRole::train, [&](std::size_t rank) { state(rank).fill(weights); });
    StepOutcome outcome;
    for (const Group& group : program_.groups)
      for (const PlacedParameter& parameter : group.parameters)
        if (group.requires_grad)
          outcome.gradients[parameter.name].resize(static_cast<std::size_t>(parameter.elements()));
    for (std::size_t rank = 0; rank < interpreters_.size(); ++rank)
      state(rank).collect(outcome.gradients);
    outcome.loss = reported_loss();
    return outcome;
  }

  /// Runs the plan of that role once on all ranks, after `fill` has filled their memory.
  void run_plan(PlanRole role, const std::function<void(std::size_t rank)>& fill) {
    check(machine_.run([&](std::int64_t rank, Backend&) -> Result<void> {
      const auto r = static_cast<std::size_t>(rank);
      microbatch_[r] = 0;
      fill(r);
      MFSDP_TRY(interpreters_[r]->run(role));
      return interpreters_[r]->finish();
    }));
  }
  [[nodiscard]] RankState state(std::size_t rank) const {
    return {program_, *interpreters_[rank], static_cast<std::int64_t>(rank)};
  }
  /// Summed over all tokens of all ranks.
  [[nodiscard]] double reported_loss() const {
    const auto report = read_report<LossReport>(
        reinterpret_cast<const float*>(state(0).bytes(*state(0).find("pinned_report"))));
    return static_cast<double>(report.mean_loss) * report.tokens;
  }

 private:
  static MachineSettings settings(const KernelSettings& kernels) {
    MachineSettings settings;
    settings.kernel = [&kernels](const KernelCall& call) { return run_kernel(call, kernels); };
    settings.poison = true;
    return settings;
  }
  static void check(const Result<void>& outcome) {
    if (!outcome) throw std::runtime_error(outcome.error().message());
  }
  HostWork host_work(std::int64_t rank) {
    return [this, rank](const BoundOp& copy, std::int64_t, std::optional<Nanos>) -> Result<void> {
      const OperandView& host = copy.operands[0];
      if (copy.op->name == "tokens.h2d")
        batches_(rank, microbatch_[static_cast<std::size_t>(rank)]++,
                 {reinterpret_cast<std::int32_t*>(host.data),
                  static_cast<std::size_t>(product_of(host.shape))});
      if (copy.op->name == "step_block.h2d") {
        const StepBlock block = make_step_block(0, 0, kernels_.optimizer);  // weights stay
        std::memcpy(host.data, &block, sizeof block);
      }
      return {};
    };
  }

  const Program& program_;
  KernelSettings kernels_;
  Machine machine_;
  Batches batches_;
  std::vector<std::unique_ptr<Interpreter>> interpreters_;
  std::vector<std::int64_t> microbatch_;
};

}  // namespace mfsdp::test
