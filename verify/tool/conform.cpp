#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/plan/plan_json.hpp"
#include "core/request/plan_file.hpp"
#include "core/schedule/build.hpp"
#include "reports/store/find_runs.hpp"
#include "reports/store/store.hpp"
#include "verify/tool/judge.hpp"

namespace mfsdp {
namespace {

Result<RunResult> load_run(const RunName& name) {
  StoreOptions existing;
  existing.create = false;
  MFSDP_LET(store, Store::open(name.store, existing));
  RunQuery any;
  any.limit = 1;
  MFSDP_LET(first, store.list(any));
  if (first.empty()) return fail(name.store, "holds no runs");
  const auto run = find_run(store, name.run == "latest" ? "@latest" : name.run);
  if (!run) return fail(name.store + ": " + run.error().where, run.error().what);
  return store.load(run->id);
}

Result<Program> plan_of(const RunResult& run, const std::string& subject,
                        const VerifyOptions& options, const Session& session) {
  if (options.common.plan) {
    MFSDP_LET(program, load_plan(*options.common.plan, notes_on(session.err, session.tool)));
    if (const std::string hash = plan_hash(program); hash != run.plan_hash)
      return fail(*options.common.plan, fmt::format("is plan {}, and {} followed plan {}", hash,
                                                    printable(subject), printable(run.plan_hash)));
    return std::move(program);
  }
  if (const auto valid = validate(run.config); !valid)
    return fail(subject + ": config", valid.error().message());
  MFSDP_LET(program, build_program(run.config, {.model_name = run.model_name,
                                                .tool_version = run.version,
                                                .stored_hash = ""}));
  if (const std::string hash = plan_hash(program); hash != run.plan_hash)
    return fail(subject, fmt::format("followed plan {}, and its configuration makes plan {}: name "
                                     "the plan that it followed with --plan",
                                     printable(run.plan_hash), hash));
  return std::move(program);
}

/// On a GPU only kernels, collectives and copies are timed, by events. Times of one GPU are exact
/// to half a microsecond. To compare two GPUs, times are aligned to the host's clock, within the
/// time of a round trip.
ConformanceSettings settings_for(const RunResult& run) {
  constexpr Nanos kRoundTrip{20'000};
  if (run.cluster.gpu == "cpu") return {};
  return {.resolution = kRoundTrip, .work_alone = true};
}

}  // namespace

Result<RunConformance> conform(const VerifyOptions& options, const Session& session) {
  MFSDP_LET(run, load_run(*options.run));
  RunConformance conformed;
  conformed.subject = fmt::format("{}: run {}", options.run->store, run.run_id);
  const Measured* measured = run.measured();
  if (measured == nullptr || measured->launches.empty())
    return fail(conformed.subject,
                fmt::format("has no record of launches (tool {}, status {}): expected a finished "
                            "run of mfsdp-exec",
                            printable(run.tool), to_string(run.status)));
  MFSDP_LET(program, plan_of(run, conformed.subject, options, session));
  conformed.plan_hash = run.plan_hash;
  auto checked = check_conformance(program, *program.find_plan(PlanRole::train), measured->launches,
                                   settings_for(run));
  if (!checked) return fail(conformed.subject + ": " + checked.error().where, checked.error().what);
  conformed.conformance = std::move(*checked);
  return conformed;
}

}  // namespace mfsdp
