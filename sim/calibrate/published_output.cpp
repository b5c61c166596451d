#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/plan/engine.hpp"
#include "sim/calibrate/published.hpp"
#include "sim/cost/cost_model.hpp"

namespace mfsdp {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string signed_percent(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

OrderedJson judged_json(const std::optional<Judged>& judged) {
  if (!judged) return nullptr;
  return {{"published", judged->published},
          {"predicted", judged->predicted},
          {"error", judged->error()}};
}

OrderedJson run_json(const PublishedRun& run) {
  return {{"origin", run.origin},
          {"source", run.source},
          {"model", run.model},
          {"gpu", run.gpu},
          {"what", run.what},
          {"experts", run.experts},
          {"engine", run.engine},
          {"catalogue_gpu", run.catalogue_gpu},
          {"calibrated", run.excluded.empty() ? OrderedJson(run.calibrated) : OrderedJson(nullptr)},
          {"excluded", run.excluded.empty() ? OrderedJson(nullptr) : OrderedJson(run.excluded)},
          {"tokens_per_s_per_gpu", judged_json(run.tokens_per_s_per_gpu)},
          {"memory_gib", judged_json(run.memory_gib)},
          {"memory_of", run.memory_of}};
}

struct Count {
  std::string origin;
  std::int64_t applies = 0;
  std::int64_t rows = 0;
};

/// Counts of all rows, then of each origin.
std::vector<Count> counts_of(const Published& published) {
  std::vector<Count> counts{{.origin = ""}};
  for (const PublishedRun& run : published.runs) {
    auto own = std::ranges::find(counts, run.origin, &Count::origin);
    if (own == counts.end()) own = counts.insert(counts.end(), {.origin = run.origin});
    for (Count* count : {counts.data(), &*own}) {
      ++count->rows;
      count->applies += run.excluded.empty() ? 1 : 0;
    }
  }
  return counts;
}

std::string counts_text(const Published& published) {
  const std::vector<Count> counts = counts_of(published);
  std::vector<std::string> parts;
  for (const Count& count : counts)
    if (!count.origin.empty())
      parts.push_back(fmt::format("{}: {} of {}", count.origin, count.applies, count.rows));
  return fmt::format("{} of {} published runs apply ({})", counts.front().applies,
                     counts.front().rows, fmt::join(parts, ", "));
}

bool judges_memory(const Published& published) {
  return std::ranges::any_of(published.runs,
                             [](const PublishedRun& run) { return run.memory_gib.has_value(); });
}

}  // namespace

std::vector<std::vector<std::string>> published_cells(const Published& published) {
  const bool memory = judges_memory(published);
  std::vector<std::vector<std::string>> cells{
      {"engine", "model", "GPU", "run", "tokens/s/GPU", "predicted", "error"}};
  if (memory)
    for (const char* title : {"GiB", "predicted", "error", "memory"})
      cells.front().emplace_back(title);
  cells.front().emplace_back("source");
  for (const PublishedRun& run : published.runs) {
    if (!run.excluded.empty()) continue;
    const Judged& tokens = *run.tokens_per_s_per_gpu;
    std::vector<std::string>& line = cells.emplace_back(std::vector<std::string>{
        std::string(shown_engine(run.engine)), run.model, run.gpu, run.what,
        fmt::format("{:.0f}", tokens.published), fmt::format("{:.0f}", tokens.predicted),
        signed_percent(tokens.error())});
    if (run.memory_gib)
      line.insert(line.end(), {fmt::format("{:.1f}", run.memory_gib->published),
                               fmt::format("{:.1f}", run.memory_gib->predicted),
                               signed_percent(run.memory_gib->error()), run.memory_of});
    line.resize(cells.front().size() - 1);
    line.push_back(run.source);
  }
  return cells;
}

std::string published_summary(const Published& published) {
  std::string text;
  for (const PublishedErrors& errors : published.errors)
    text += fmt::format("{} {}: {} off by {:.1f} % on average, {} at worst ({} {})\n", errors.by,
                        errors.name, errors.of, 100 * errors.mean, signed_percent(errors.worst),
                        errors.rows, errors.rows == 1 ? "run" : "runs");
  text += "\n" + counts_text(published) + ". Excluded, each by the first rule that holds:\n";
  for (const Exclusion& rule : published.excluded)
    text += fmt::format("  {:>3}  {}\n", rule.rows, rule.rule);
  return text;
}

std::string published_json(const Published& published) {
  OrderedJson object = {{"schema", "mfsdp.published/1"}, {"cost_model_version", kCostModelVersion}};
  OrderedJson runs = OrderedJson::array();
  for (const PublishedRun& run : published.runs) runs.push_back(run_json(run));
  object["runs"] = std::move(runs);
  OrderedJson errors = OrderedJson::array();
  for (const PublishedErrors& one : published.errors)
    errors.push_back({{"by", one.by},
                      {"name", one.name},
                      {"of", one.of},
                      {"runs", one.rows},
                      {"mean", one.mean},
                      {"worst", one.worst}});
  object["errors"] = std::move(errors);
  OrderedJson excluded = OrderedJson::array();
  for (const Exclusion& rule : published.excluded)
    excluded.push_back({{"rule", rule.rule}, {"runs", rule.rows}});
  object["excluded"] = std::move(excluded);
  return object.dump(2) + "\n";
}

}  // namespace mfsdp
