#include "reports/commands/export_field.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/plan/engine.hpp"
#include "reports/trace/chrome_trace.hpp"
#include "reports/trace/memory_snapshot.hpp"
#include "reports/trace/step_picture.hpp"
#include "reports/trace/tensorboard.hpp"

namespace mfsdp {
namespace {

Result<void> export_snapshot(const RunResult& run, KnownPlans& plans,
                             const std::filesystem::path& path) {
  const std::string where = "run " + printable(run.run_id);
  const auto engine = parse<EngineKind>(run.engine);
  if (!engine || !traits_of(*engine).runs_plans)
    return fail(
        where,
        fmt::format("a store keeps the buffers of our own engine alone, and it is of "
                    "{}{}",
                    printable(shown_engine(run.engine)),
                    engine ? ": mfsdp-sim --memory-snapshot writes what that allocates" : ""));
  const std::shared_ptr<const Program> program = plans.of(run);
  if (!program)
    return fail(where,
                "its plan is not known, so neither are its buffers: what the store keeps of the "
                "configuration builds another plan (edited, or of another version)");
  return write_memory_snapshot(run, *program, path);
}

/// The field format that a file's ending implies, or none.
struct KnownEnding {
  std::string_view ending;
  std::optional<FieldFormat> format;
};

constexpr std::array kKnownEndings{KnownEnding{".json", FieldFormat::chrome},
                                   KnownEnding{".gz", FieldFormat::chrome},
                                   KnownEnding{".pickle", FieldFormat::memory_snapshot},
                                   KnownEnding{".pkl", FieldFormat::memory_snapshot},
                                   KnownEnding{".svg", FieldFormat::svg},
                                   KnownEnding{".sqlite", {}},
                                   KnownEnding{".jsonl", {}},
                                   KnownEnding{".csv", {}},
                                   KnownEnding{".md", {}},
                                   KnownEnding{".html", {}}};

std::string_view usual_name(FieldFormat format) {
  switch (format) {
    case FieldFormat::chrome: return "step.json.gz";
    case FieldFormat::memory_snapshot: return "memory.pickle";
    case FieldFormat::svg: return "step.svg";
    case FieldFormat::tensorboard: break;
  }
  return "events.out.tfevents.1";
}

}  // namespace

Result<void> check_field_name(FieldFormat format, const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto known = std::ranges::find_if(
      kKnownEndings, [&](const KnownEnding& each) { return name.ends_with(each.ending); });
  const bool is_events = name.find("tfevents") != std::string::npos;
  const bool differs = is_events ? format != FieldFormat::tensorboard
                                 : known != kKnownEndings.end() && known->format != format;
  if (!differs) return {};
  return fail("--to", fmt::format("{} is no name for {}: expected one such as {}",
                                  in_quotes(path.string()), to_string(format), usual_name(format)));
}

std::string field_file_name(FieldFormat format, const RunHead& run) {
  constexpr std::size_t kShown = 8;
  const std::string id = file_name_part(run.run_id.substr(0, kShown));
  switch (format) {
    case FieldFormat::chrome: return "trace_" + id + ".json.gz";
    case FieldFormat::memory_snapshot: return "memory_" + id + ".pickle";
    case FieldFormat::svg: return "step_" + id + ".svg";
    case FieldFormat::tensorboard: break;
  }
  return tensorboard_file_name(run);
}

Result<void> export_field(FieldFormat format, const RunResult& run, KnownPlans& plans,
                          const std::filesystem::path& path) {
  switch (format) {
    case FieldFormat::chrome: return write_chrome_trace(run, path, plans.of(run).get());
    case FieldFormat::memory_snapshot: return export_snapshot(run, plans, path);
    case FieldFormat::svg: return write_step_picture(run, path, plans.of(run).get());
    case FieldFormat::tensorboard: break;
  }
  return write_tensorboard(run, path);
}

}  // namespace mfsdp
