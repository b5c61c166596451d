#include "core/request/plan_file.hpp"

#include <fmt/format.h>

#include "core/base/atomic_file.hpp"
#include "core/base/read_file.hpp"
#include "core/plan/plan_json.hpp"

namespace mfsdp {
namespace {

/// Far above the size of any built-in model's plan.
constexpr std::size_t kMostPlanBytes = std::size_t{1} << 30;

void note_change(const Meta& meta, const std::string& hash, const std::string& path,
                 const Notes& notes) {
  if (!meta.stored_hash.empty() && meta.stored_hash != hash && notes.note)
    notes.note(
        fmt::format("{}: the plan was changed since it was written, its hash is {}", path, hash));
}

}  // namespace

Result<Program> load_plan(const std::string& path, const Notes& notes) {
  MFSDP_LET(text, read_file(path, "a plan", kMostPlanBytes));
  MFSDP_LET(program, program_from_json(text, path));
  note_change(program.meta, plan_hash(program), path, notes);
  return std::move(program);
}

Result<Job> load_job(const std::string& path, const Notes& notes, std::string* hash) {
  MFSDP_LET(text, read_file(path, "a plan", kMostPlanBytes));
  MFSDP_LET(job, job_from_json(text, path));
  const std::string known = plan_hash(job);
  note_change(job.programs[0].meta, known, path, notes);
  if (hash != nullptr) *hash = known;
  return std::move(job);
}

namespace {

Result<void> write_any(const CommonOptions& options, const auto& plan) {
  if (!options.plan_out) return {};
  return write_file_atomically(*options.plan_out, to_canonical_json(plan) + "\n");
}

}  // namespace

Result<void> write_plan(const CommonOptions& options, const Program& program) {
  return write_any(options, program);
}

Result<void> write_plan(const CommonOptions& options, const Job& job) {
  return write_any(options, job);
}

}  // namespace mfsdp
