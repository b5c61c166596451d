// Runs a training on the CPU and records its events and results.
#pragma once

#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/hf_config.hpp"
#include "core/plan/job.hpp"
#include "core/runtime/scalar.hpp"
#include "core/schedule/build.hpp"
#include "gpu_backend/train/held_values.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp::test {

/// Sample i counts up from i: the next token is the last one plus 1, which a model learns in a few
/// steps. Labels of the first `prompt` tokens are left out, and all of samples that `mute` names.
class Counting final : public Dataset {
 public:
  std::int64_t vocab = 264;
  std::int64_t size = 64;
  std::size_t prompt = 0;
  std::function<bool(std::int64_t)> mute = [](std::int64_t) { return false; };

  [[nodiscard]] std::string describe() const override { return "counting"; }
  [[nodiscard]] std::int64_t samples() const override { return size; }
  [[nodiscard]] std::optional<double> unigram_entropy() const override { return std::nullopt; }
  [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
    const auto& [tokens, labels, positions] = out;
    if (index < 0 || index >= size) return fail("sample", "out of range");
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto at = index + static_cast<std::int64_t>(t);
      tokens[t] = static_cast<std::int32_t>(at % vocab);
      labels[t] =
          t < prompt || mute(index) ? kIgnoreIndex : static_cast<std::int32_t>((at + 1) % vocab);
    }
    return {};
  }
};

inline PlanConfig nano(std::int64_t ranks = 2, Strategy strategy = Strategy::optim_grads_params) {
  const auto models = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models";
  PlanConfig config;
  config.model = load_model("llama_nano", models).value().shape;
  config.mesh = data_parallel_mesh(1, ranks);
  config.strategy = strategy;
  config.seq_len = 16;
  config.logits_chunk = 16;
  return config;
}

/// All elements of each parameter, as the ranks together hold them; NaN where none does.
using Weights = std::map<std::string, std::vector<float>>;

inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// The events of a run, and its final state.
struct Told {
  Result<void> end;
  std::vector<StepReport> steps;
  std::vector<EvalReport> evaluations;
  std::vector<SaveReport> saves;
  std::map<std::int64_t, std::vector<ParameterNorm>> norms;
  std::vector<std::int64_t> steps_done;  ///< by rank
  Weights weights;                       ///< that the optimizer updates
  Weights computed;                      ///< that forward and backward read
  Weights gradients;           ///< of the last step, summed over tokens; without frozen parameters
  std::set<std::string> torn;  ///< parameters of which ranks hold different bits
  bool allocated_as_planned = true;  ///< byte for byte, pool by pool, on every rank

  [[nodiscard]] std::vector<double> losses() const {
    std::vector<double> all;
    for (const StepReport& report : steps) all.push_back(report.loss);
    return all;
  }
};

class Listener final : public TrainSink {
 public:
  explicit Listener(Told& told) : told_(told) {}
  [[nodiscard]] Result<void> step(const StepReport& report) override {
    told_.steps.push_back(report);
    return {};
  }
  [[nodiscard]] Result<void> evaluation(const EvalReport& report) override {
    told_.evaluations.push_back(report);
    return {};
  }
  [[nodiscard]] Result<void> saved(const SaveReport& report) override {
    told_.saves.push_back(report);
    return {};
  }
  [[nodiscard]] Result<void> norms(std::int64_t step,
                                   std::span<const ParameterNorm> norms) override {
    told_.norms[step].assign(norms.begin(), norms.end());
    return {};
  }

 private:
  Told& told_;
};

/// Puts what a rank holds of a parameter into the whole; false if another rank holds other bits.
inline bool put(Weights& whole, const ParameterPlaces& places, Backend& backend,
                const HeldElements& held) {
  constexpr float nobodys = std::numeric_limits<float>::quiet_NaN();
  std::vector<float>& values = whole[places.parameter->name];
  values.resize(static_cast<std::size_t>(places.parameter->elements()), nobodys);
  bool agrees = true;
  const auto read = for_each_value(backend, held, [&](std::int64_t i, double held_value) {
    float& value = values[static_cast<std::size_t>(places.place_of(i))];
    const auto own = static_cast<float>(held_value);
    agrees = agrees && (same_bits(value, nobodys) || same_bits(value, own));
    value = own;
  });
  return read && agrees;
}

/// Puts what a rank holds after its run into what all ranks together hold.
inline void put_all(Told& told, const Trainer& trainer, Backend& backend) {
  for (const ParameterPlaces& places : trainer.parameters()) {
    bool agrees = put(told.weights, places, backend, places.own);
    agrees = put(told.computed, places, backend, places.weight) && agrees;
    if (places.group->requires_grad)
      agrees = put(told.gradients, places, backend, places.gradient) && agrees;
    if (!agrees) told.torn.insert(places.parameter->name);
  }
}

/// Makes the first weight of a parameter NaN before the run.
inline void spoil(std::string_view name, Trainer& trainer) {
  for (const ParameterPlaces& places : trainer.parameters())
    for (const HeldElements* held : {&places.own, &places.weight})
      if (places.parameter->name == name && held->elements.begin == 0 && !held->elements.empty())
        std::memset(held->data, 0xff, static_cast<std::size_t>(size_of(held->dtype)));
}

/// A test's changes of a run.
struct Twist {
  std::function<void(TrainInputs&)> inputs = [](TrainInputs&) {};
  std::function<void(MachineSettings&)> machine = [](MachineSettings&) {};
  /// A backend between the trainer and the machine; null for none.
  std::function<std::unique_ptr<Backend>(Backend&)> backend = [](Backend&) { return nullptr; };
  std::function<void(std::int64_t, Trainer&)> before = [](std::int64_t, Trainer&) {};
};

/// Trains `steps` steps of a job at a learning rate that shows in few of them.
inline Told train(std::span<const Program> programs, std::int64_t steps, const Dataset& data,
                  const Twist& twist = {}) {
  const PlanConfig& config = programs.front().config;
  std::optional<Machine> machine;
  SharedHostGather gather(config.mesh.world_size(),
                          [&](std::int64_t rank, bool waits) { machine->host_waits(rank, waits); });
  TrainInputs inputs{.data = &data, .gather = &gather};
  inputs.settings.steps = steps;
  inputs.settings.learning_rate = {.peak = 1e-2, .minimum = 1e-3, .warmup = 2};
  inputs.settings.seed = 7;
  twist.inputs(inputs);

  const KernelSettings kernels{.program = &programs.front(),
                               .optimizer = inputs.settings.optimizer};
  MachineSettings settings;
  settings.kernel = [&](const KernelCall& call) { return run_kernel(call, kernels); };
  twist.machine(settings);
  machine.emplace(programs, settings);

  Told told;
  told.steps_done.resize(static_cast<std::size_t>(config.mesh.world_size()));
  Listener listener(told);
  std::mutex putting;
  told.end = machine->run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    const std::unique_ptr<Backend> between = twist.backend(backend);
    MFSDP_LET(trainer, Trainer::create(programs, between ? *between : backend, rank, inputs,
                                       rank == reporting_rank(programs) ? &listener : nullptr));
    twist.before(rank, *trainer);
    MFSDP_TRY(trainer->run());
    const std::scoped_lock lock(putting);
    told.steps_done[static_cast<std::size_t>(rank)] = trainer->steps_done();
    put_all(told, *trainer, backend);
    return {};
  });
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  for (std::size_t rank = 0; rank < classes.size(); ++rank) {
    std::vector<Bytes> heights;
    for (const Pool& pool : programs[classes[rank]].pools) heights.push_back(pool.height);
    told.allocated_as_planned =
        told.allocated_as_planned && machine->allocated(static_cast<std::int64_t>(rank)) == heights;
  }
  return told;
}

inline Told train(const Program& program, std::int64_t steps, const Dataset& data,
                  const Twist& twist = {}) {
  return train(std::span(&program, 1), steps, data, twist);
}

inline Told train(const PlanConfig& config, std::int64_t steps, const Dataset& data,
                  const Twist& twist = {}) {
  return train(build_job(config, {}).value().programs, steps, data, twist);
}

}  // namespace mfsdp::test
