#include "gpu_backend/tool/run_facts.hpp"

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "gpu_backend/checkpoint/agreement.hpp"
#include "gpu_backend/tool/process_memory.hpp"

namespace mfsdp {
namespace {

/// From /proc/cpuinfo; empty if it has none.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

}  // namespace

Result<Facts> recipe_facts(const ExecOptions& options, const RunInputs& inputs,
                           const RunHead& run) {
  const TrainSettings& settings = inputs.settings;
  MFSDP_LET(data, identify(*inputs.data, run.config.seq_len, run.config.document_mask));
  Facts facts;
  const auto add = [&](std::string name, FactValue value) {
    facts.push_back({.topic = "recipe", .name = std::move(name), .value = std::move(value)});
  };
  add("steps", settings.steps);
  add("learning_rate", settings.learning_rate.peak);
  add("min_learning_rate", settings.learning_rate.minimum);
  add("warmup_steps", settings.learning_rate.warmup);
  add("lr_schedule", std::string(to_string(settings.learning_rate.schedule)));
  if (settings.learning_rate.schedule == RateSchedule::wsd)
    add("decay_steps", settings.learning_rate.decay);
  add("weight_decay", settings.optimizer.weight_decay);
  add("beta1", settings.optimizer.beta1);
  add("beta2", settings.optimizer.beta2);
  add("epsilon", settings.optimizer.epsilon);
  if (orthogonalises(run.config.optimizer)) add("momentum", settings.optimizer.momentum);
  add("seed", static_cast<std::int64_t>(settings.seed));
  add("data", data.description);
  add("data_samples", data.samples);
  add("data_fingerprint", fmt::format("{:016x}", data.fingerprint));
  if (options.data.epochs) add("epochs", *options.data.epochs);
  if (inputs.text) {
    add("tokenizer", inputs.text->tokenizer->name());
    if (inputs.text->chat) add("chat_template", std::string(to_string(*inputs.text->chat)));
  }
  if (inputs.eval_data) {
    add("eval_data", inputs.eval_data->describe());
    add("eval_every", settings.eval_every);
  }
  add("init_from", options.init_from.value_or("random weights of the seed"));
  if (options.init_adapters) add("init_adapters", *options.init_adapters);
  return facts;
}

Facts cpu_facts() {
  Facts facts;
  if (std::string name = cpu_name(); !name.empty())
    facts.push_back({.topic = "hardware", .name = "cpu", .value = std::move(name)});
  facts.push_back({.topic = "hardware",
                   .name = "threads",
                   .value = static_cast<std::int64_t>(std::thread::hardware_concurrency())});
  facts.push_back({.topic = "hardware", .name = "memory_bytes", .value = physical_memory().value});
  return facts;
}

}  // namespace mfsdp
