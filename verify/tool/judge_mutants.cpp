#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/cli/progress.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/plan_json.hpp"
#include "verify/mutation/edit_pairs.hpp"
#include "verify/mutation/mutate.hpp"
#include "verify/mutation/render_field_mutation.hpp"
#include "verify/mutation/render_mutation.hpp"
#include "verify/tool/judge.hpp"

namespace mfsdp {
namespace {

/// Shows on stderr how many mutants are judged; returns false after an interrupt.
auto mutant_progress(std::optional<Progress>& progress, const Session& session) {
  return [&](std::size_t done, std::size_t of) {
    if (!progress) progress.emplace(session.err, "mutants", static_cast<std::int64_t>(of));
    progress->at(static_cast<std::int64_t>(done));
    return !session.interrupted;
  };
}

/// Writes the plan with one of the changes as a file that all tools read.
Result<ExitCode> write_field_mutant(const Job& job, const VerifyOptions& options,
                                    const Session& session) {
  const auto plan = nlohmann::json::parse(to_canonical_json(job));
  const auto per_field = static_cast<std::size_t>(options.per_field);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const std::vector<FieldMutant> all = options.mutate_pairs
                                           ? pair_mutants(job.programs[0], per_field, seed)
                                           : field_mutants(plan, per_field, seed).list;
  if (*options.mutant >= std::ssize(all))
    return fail("--mutant",
                fmt::format("expected a number below {}, got {}", all.size(), *options.mutant));
  const FieldMutant& mutant = all.at(static_cast<std::size_t>(*options.mutant));
  MFSDP_TRY(write_file_atomically(*options.mutant_out, altered_text(plan, mutant) + "\n"));
  session.out << wrap_text(fmt::format("{}: {}, {} -> {}\n", mutant.place, to_string(mutant.edit),
                                       mutant.before.empty() ? "nothing" : mutant.before,
                                       mutant.after.empty() ? "nothing" : mutant.after),
                           session.style);
  return ExitCode::good;
}

}  // namespace

Result<ExitCode> mutate_plan(const Program& program, const VerifyOptions& options,
                             const Session& session) {
  MutationSettings settings;
  if (options.mutants) settings.most = static_cast<std::size_t>(*options.mutants);
  settings.seed = static_cast<std::uint64_t>(options.seed);
  std::optional<Progress> progress;
  settings.progress = mutant_progress(progress, session);
  MFSDP_LET(report, mutate(program, settings));
  progress.reset();
  switch (options.output) {
    case FindingsFormat::json: session.out << render_mutation_json(program, report); break;
    case FindingsFormat::md: session.out << render_mutation_markdown(program, report); break;
    default: session.out << wrap_text(render_mutation_text(program, report), session.style);
  }
  if (session.interrupted) return ExitCode::interrupted;
  return report.total.uncertified == 0 ? ExitCode::good : ExitCode::negative;
}

Result<ExitCode> mutate_plan_fields(const Job& job, const VerifyOptions& options,
                                    const Session& session, const Machines& machines) {
  if (options.mutant) return write_field_mutant(job, options, session);
  FieldMutationSettings settings;
  settings.machines = machines;
  settings.per_field = static_cast<std::size_t>(options.per_field);
  if (options.mutants) settings.most = static_cast<std::size_t>(*options.mutants);
  settings.seed = static_cast<std::uint64_t>(options.seed);
  std::optional<Progress> progress;
  settings.progress = mutant_progress(progress, session);
  MFSDP_LET(report, options.mutate_pairs ? mutate_pairs(job.programs[0], settings)
                                         : mutate_fields(job, settings));
  progress.reset();
  switch (options.output) {
    case FindingsFormat::json: session.out << render_field_mutation_json(report); break;
    case FindingsFormat::md: session.out << render_field_mutation_markdown(report); break;
    default: session.out << wrap_text(render_field_mutation_text(report), session.style);
  }
  if (session.interrupted) return ExitCode::interrupted;
  return report.defects() == 0 ? ExitCode::good : ExitCode::negative;
}

}  // namespace mfsdp
