#include "sim/search/setting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <type_traits>
#include <utility>

namespace mfsdp {
namespace {

/// A field that is no member of PlanConfig, or whose member make_plan_config() derives from others.
struct JobField {
  std::string_view flag;
  FieldValue (*read)(const JobOptions&);
  void (*write)(const FieldValue&, JobOptions&);
};

template <class T>
FieldValue read_member(const T& member) {
  return FieldValue(std::in_place_type<T>, member);
}
template <class T>
FieldValue read_member(const std::optional<T>& member) {
  return FieldValue(std::in_place_type<T>, *member);
}

template <class T>
void write_member(const FieldValue& value, T& member) {
  member = std::get<T>(value);
}
template <class T>
void write_member(const FieldValue& value, std::optional<T>& member) {
  member = std::get<T>(value);
}

/// `Member(job)` is the job's member.
template <auto Member>
constexpr JobField field(std::string_view flag) {
  return {
      .flag = flag,
      .read = [](const JobOptions& job) { return read_member(Member(job)); },
      .write = [](const FieldValue& value, JobOptions& job) { write_member(value, Member(job)); }};
}

FieldValue read_strategy(const JobOptions& job) {
  return NamedStrategy{.strategy = job.common.config.strategy, .outer = job.common.outer_asked};
}

/// hsdp and hfsdp name the outer strategy too.
void write_strategy(const FieldValue& value, JobOptions& job) {
  const auto& named = std::get<NamedStrategy>(value);
  job.common.config.strategy = named.strategy;
  job.common.outer_asked = named.outer;
  if (!contains(job.given, "--outer-strategy"))
    job.common.config.outer_strategy = named.outer.value_or(Strategy::no_shard);
}

FieldValue read_batch(const JobOptions& job) {
  if (job.common.batch_tokens) return BatchTokens{*job.common.batch_tokens};
  return read_member(job.common.global_batch);
}

void write_batch(const FieldValue& value, JobOptions& job) {
  job.common.global_batch.reset();
  job.common.batch_tokens.reset();
  if (const auto* batch = std::get_if<BatchTokens>(&value))
    job.common.batch_tokens = batch->tokens;
  else
    job.common.global_batch = std::get<std::int64_t>(value);
}

constexpr std::array kJobFields{
    field<[](auto& job) -> auto& { return job.common.model; }>("--model"),
    field<[](auto& job) -> auto& { return job.common.gpus; }>("--gpus"),
    field<[](auto& job) -> auto& { return job.common.gpu; }>("--gpu"),
    field<[](auto& job) -> auto& { return job.common.cluster; }>("--cluster"),
    field<[](auto& job) -> auto& { return job.network_gbps; }>("--network-gbps"),
    field<[](auto& job) -> auto& { return job.power_limit; }>("--power-limit"),
    field<[](auto& job) -> auto& { return job.tables; }>("--tables"),
    field<[](auto& job) -> auto& { return job.engine; }>("--engine"),
    field<[](auto& job) -> auto& { return job.common.outer_dp; }>("--outer-dp"),
    field<[](auto& job) -> auto& { return job.common.context_parallel; }>("--cp"),
    field<[](auto& job) -> auto& { return job.common.tensor_parallel; }>("--tp"),
    field<[](auto& job) -> auto& { return job.common.pipeline_parallel; }>("--pp"),
    field<[](auto& job) -> auto& { return job.common.seq_len; }>("--seq-len"),
    JobField{.flag = "--strategy", .read = read_strategy, .write = write_strategy},
    JobField{.flag = "--global-batch", .read = read_batch, .write = write_batch}};

const JobField* job_field(std::string_view flag) {
  const auto* const found = std::ranges::find(kJobFields, flag, &JobField::flag);
  return found == kJobFields.end() ? nullptr : found;
}

const ConfigField& config_field(std::string_view flag) {
  const auto* const found = std::ranges::find(kConfigFields, flag, &ConfigField::flag);
  assert(found != kConfigFields.end());
  return *found;
}

std::string value_text(const std::string& text) { return text; }
std::string value_text(const NamedStrategy& named) {
  if (named.outer) return named.outer == Strategy::optim ? "hfsdp" : "hsdp";
  return std::string(to_string(named.strategy));
}
std::string value_text(const BatchTokens& batch) { return fmt::format("{} tokens", batch.tokens); }
std::string value_text(const auto& value) { return flag_text(value); }

}  // namespace

Setting setting(std::string_view flag, FieldValue value) {
  std::string text = std::visit([](const auto& typed) { return value_text(typed); }, value);
  return {.flag = std::string(flag), .value = std::move(value), .text = std::move(text)};
}

FieldValue value_of(const JobOptions& job, std::string_view flag) {
  if (const JobField* field = job_field(flag)) return field->read(job);
  return std::visit([&](const auto member) { return read_member(job.common.config.*member); },
                    config_field(flag).member);
}

void apply(const Setting& setting, JobOptions& job) {
  if (const JobField* field = job_field(setting.flag))
    field->write(setting.value, job);
  else
    std::visit([&](const auto member) { write_member(setting.value, job.common.config.*member); },
               config_field(setting.flag).member);
  if (!contains(job.given, setting.flag)) job.given.push_back(setting.flag);
}

JobOptions with_settings(JobOptions job, std::span<const Setting> settings) {
  for (const Setting& setting : settings) apply(setting, job);
  return job;
}

std::string flags_text(std::span<const Setting> settings) {
  std::string text;
  for (const Setting& setting : settings)
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", setting.flag, setting.text);
  return text;
}

}  // namespace mfsdp
