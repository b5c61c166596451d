#include "gpu_backend/checkpoint/agreement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "core/base/json_text.hpp"
#include "reports/record/result_json.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

Json model_of(const RunIdentity& run) {
  RunHead result;
  result.config = run.config;
  Json json = Json::parse(model_json(result));
  json.erase("name");
  json.erase("parameters");
  return json;
}

/// The first difference of fields that must be equal.
class Comparison {
 public:
  explicit Comparison(std::string where) : where_(std::move(where)) {}

  template <class T>
  void operator()(const char* field, const T& run, const T& saved) {
    if (!outcome_ || run == saved) return;
    outcome_ = fail(fmt::format("{}.{}", where_, field),
                    fmt::format("expected {}, as this run has, got {}", run, saved));
  }
  [[nodiscard]] const Result<void>& outcome() const { return outcome_; }

 private:
  std::string where_;
  Result<void> outcome_;
};

std::string shown(const std::vector<std::string>& texts) {
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ","));
}

}  // namespace

Result<DataIdentity> identify(const Dataset& data, std::int64_t seq_len, bool documents) {
  constexpr std::int64_t kLooks = 8;
  const auto length = static_cast<std::size_t>(seq_len);
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < kLooks; ++i) {
    const std::size_t begin = all.size();
    all.resize(begin + (documents ? 3 : 2) * length);
    const std::span<std::int32_t> rows = std::span(all).subspan(begin);
    SampleSpans sample{.tokens = rows.first(length), .labels = rows.subspan(length, length)};
    if (documents) sample.positions = rows.last(length);
    count_positions(sample.positions);
    // Not index = i * (samples - 1) / 7 in one multiplication: samples may be near 2^63.
    const std::int64_t last = data.samples() - 1;
    const std::int64_t index = last / (kLooks - 1) * i + last % (kLooks - 1) * i / (kLooks - 1);
    MFSDP_TRY(data.read(index, sample));
  }
  // Includes a mixture's weights, as if they were tokens; other data have none.
  for (const char c : data.order()) all.push_back(static_cast<unsigned char>(c));
  return DataIdentity{.description = data.describe(),
                      .samples = data.samples(),
                      .fingerprint = checksum_of(std::as_bytes(std::span(all)))};
}

Result<std::vector<std::string>> check_agreement(const RunIdentity& run, const RunIdentity& saved,
                                                 const std::string& where) {
  Comparison equal(where);
  const Json here = model_of(run);
  const Json there = model_of(saved);
  for (const auto& [key, value] : here.items())
    equal(("model." + key).c_str(), json_excerpt(value),
          there.contains(key) ? json_excerpt(there[key]) : "none");
  const PlanConfig& now = run.config;
  const PlanConfig& before = saved.config;
  equal("config.param_dtype", to_string(now.param_dtype), to_string(before.param_dtype));
  equal("config.main_dtype", to_string(now.main_dtype), to_string(before.main_dtype));
  equal("config.frozen", shown(now.frozen), shown(before.frozen));
  equal("config.lora_rank", now.lora_rank, before.lora_rank);
  equal("config.lora_alpha", now.lora_alpha.value(), before.lora_alpha.value());
  equal("config.lora_targets", shown(now.lora_targets), shown(before.lora_targets));
  equal("config.optimizer", to_string(now.optimizer), to_string(before.optimizer));
  equal("config.state_dtype", to_string(now.state_dtype), to_string(before.state_dtype));
  equal("config.no_decay", shown(now.no_decay), shown(before.no_decay));
  equal("optimizer.beta1", run.optimizer.beta1, saved.optimizer.beta1);
  equal("optimizer.beta2", run.optimizer.beta2, saved.optimizer.beta2);
  equal("optimizer.epsilon", run.optimizer.epsilon, saved.optimizer.epsilon);
  equal("optimizer.momentum", run.optimizer.momentum, saved.optimizer.momentum);
  equal("optimizer.weight_decay", run.optimizer.weight_decay, saved.optimizer.weight_decay);
  equal("seed", run.seed, saved.seed);
  MFSDP_TRY(equal.outcome());
  std::vector<std::string> warnings;
  if (now.seq_len != before.seq_len)
    warnings.push_back(fmt::format("sequences have {} tokens, those before the save had {}",
                                   now.seq_len, before.seq_len));
  else if (run.data.samples != saved.data.samples || run.data.fingerprint != saved.data.fingerprint)
    warnings.push_back(fmt::format("the data are others than those before the save: {}, not {}",
                                   run.data.description, saved.data.description));
  if (now.document_mask != before.document_mask)
    warnings.emplace_back(
        now.document_mask ? "attention is masked between documents, before the save it was not"
                          : "attention is not masked between documents, before the save it was");
  if (now.global_batch() != before.global_batch())
    warnings.push_back(fmt::format("a step has {} sequences, those before the save had {}",
                                   now.global_batch(), before.global_batch()));
  return warnings;
}

}  // namespace mfsdp
