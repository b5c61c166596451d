#include "reports/report_tool/export_field.hpp"

#include "core/base/text.hpp"
#include "reports/trace/chrome_trace.hpp"
#include "reports/trace/memory_snapshot.hpp"
#include "reports/trace/tensorboard.hpp"

namespace mfsdp {
namespace {

Result<void> export_snapshot(const RunResult& run, KnownPlans& plans,
                             const std::filesystem::path& path) {
  const std::shared_ptr<const Program> program = plans.of(run);
  if (!program)
    return fail("run " + printable(run.run_id),
                "its plan is not known, so neither are its buffers: what the store keeps of the "
                "configuration builds another plan (edited, or of another version)");
  return write_memory_snapshot(run, *program, path);
}

}  // namespace

std::string field_file_name(FieldFormat format, const RunHead& run) {
  constexpr std::size_t kShown = 8;
  const std::string id = file_name_part(run.run_id.substr(0, kShown));
  switch (format) {
    case FieldFormat::chrome: return "trace_" + id + ".json.gz";
    case FieldFormat::memory_snapshot: return "memory_" + id + ".pickle";
    case FieldFormat::tensorboard: break;
  }
  return tensorboard_file_name(run);
}

Result<void> export_field(FieldFormat format, const RunResult& run, KnownPlans& plans,
                          const std::filesystem::path& path) {
  switch (format) {
    case FieldFormat::chrome: return write_chrome_trace(run, path, plans.of(run).get());
    case FieldFormat::memory_snapshot: return export_snapshot(run, plans, path);
    case FieldFormat::tensorboard: break;
  }
  return write_tensorboard(run, path);
}

}  // namespace mfsdp
