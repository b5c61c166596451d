#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "reports/budget/budget.hpp"
#include "reports/budget/stamps.hpp"

namespace mfsdp {
namespace {

std::string number(std::int64_t value) { return fmt::format("{}", value); }

/// Tokens that all ranks together work on in a step.
std::string tokens_of_job(const RunResult& run) { return number(run.config.global_tokens()); }

std::string prices_of(const RunResult& run) {
  return run.predicted() != nullptr ? run.predicted()->cost_model_version : std::string();
}

/// Texts as a budget's file can hold them: printable, and "?" for what is beyond ASCII.
std::string text_of_stamp(const StampKind& kind, const RunResult& run) {
  if (kind.figure && run.absent.has(*kind.figure)) return {};
  std::string text = printable(kind.read(run));
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return text;
}

}  // namespace

const std::vector<StampKind>& stamp_kinds() {
  // Runs of another length, batch or source answer another question, so they are not compared.
  static const std::vector<StampKind> kinds{
      {"model", "model", false, Breaks::everything, [](const auto& r) { return r.model_name; }},
      {"parameters", "parameters", true, Breaks::everything,
       [](const auto& r) { return number(r.parameters); }, ResultFigure::parameters},
      {"tokens_per_step", "tokens of a rank and step", true, Breaks::everything,
       [](const auto& r) { return number(r.config.tokens_per_step()); }, ResultFigure::config},
      {"global_tokens_per_step", "tokens of all ranks and a step", true, Breaks::everything,
       tokens_of_job, ResultFigure::config},
      {"gpu", "GPU", false, Breaks::everything, [](const auto& r) { return r.cluster.gpu; }},
      {"gpus", "GPUs", true, Breaks::everything,
       [](const auto& r) { return number(r.cluster.gpus); }, ResultFigure::gpus},
      {"gpus_per_node", "GPUs of a node", true, Breaks::everything,
       [](const auto& r) { return number(r.cluster.gpus_per_node); }, ResultFigure::gpus_per_node},
      {"network", "network", false, Breaks::times, [](const auto& r) { return r.cluster.network; }},
      {"engine", "engine", false, Breaks::everything, [](const auto& r) { return r.engine; }},
      {"source", "source", false, Breaks::everything,
       [](const auto& r) { return std::string(r.source()); }},
      {"cost_model_version", "cost model", false, Breaks::times, prices_of},
      {"plan_hash", "plan", false, Breaks::nothing, [](const auto& r) { return r.plan_hash; }}};
  return kinds;
}

std::vector<BudgetStamp> stamps_of(const RunResult& run) {
  std::vector<BudgetStamp> stamps;
  for (const StampKind& kind : stamp_kinds()) {
    std::string text = text_of_stamp(kind, run);
    if (!text.empty()) stamps.push_back({.key = kind.key, .text = std::move(text)});
  }
  return stamps;
}

std::vector<StampMismatch> mismatches(std::span<const BudgetStamp> stamps, const RunResult& run) {
  std::vector<StampMismatch> found;
  for (const BudgetStamp& stamp : stamps) {
    const auto kind = std::ranges::find(stamp_kinds(), stamp.key, &StampKind::key);
    std::string now = text_of_stamp(*kind, run);
    if (now != stamp.text)
      found.push_back({.stamp = stamp, .now = std::move(now), .breaks = kind->breaks});
  }
  return found;
}

std::string difference_text(const StampMismatch& mismatch) {
  const auto kind = std::ranges::find(stamp_kinds(), mismatch.stamp.key, &StampKind::key);
  return fmt::format("{} {}, now {}", kind->title, printable(mismatch.stamp.text),
                     mismatch.now.empty() ? "none" : printable(mismatch.now));
}

std::string mismatch_text(const StampMismatch& mismatch) {
  constexpr std::array consequences{"the plan has changed", "times are not comparable",
                                    "nothing is comparable"};
  return fmt::format("{}{}: {}",
                     mismatch.stamp.line > 0 ? fmt::format("line {}: ", mismatch.stamp.line)
                                             : std::string("baseline: "),
                     difference_text(mismatch),
                     consequences.at(static_cast<std::size_t>(mismatch.breaks)));
}

}  // namespace mfsdp
