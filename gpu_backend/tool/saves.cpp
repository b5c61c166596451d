#include "gpu_backend/tool/saves.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "gpu_backend/checkpoint/agreement.hpp"

namespace mfsdp {
namespace {

Result<RunIdentity> identity_of(const RunResult& run, const TrainSettings& settings,
                                const Dataset& data) {
  MFSDP_LET(told_apart, identify(data, run.config.seq_len));
  return RunIdentity{.model_name = run.model_name,
                     .parameters = run.parameters,
                     .config = run.config,
                     .optimizer = settings.optimizer,
                     .seed = settings.seed,
                     .data = told_apart,
                     .plan_hash = run.plan_hash,
                     .run_id = run.run_id};
}

Result<SavedState> open_resumed(const std::string& path, const Session& session,
                                const RunIdentity& identity, const Program& program, bool leads) {
  MFSDP_LET(saved, SavedState::open(path));
  const std::string manifest = (saved.folder() / kManifestName).string();
  MFSDP_LET(warnings, check_agreement(identity, saved.manifest().run, manifest));
  MFSDP_TRY(saved.check(expected_state(program)));
  for (const std::string& warning : warnings)
    if (leads) report_warning(session.err, manifest + ": " + warning, session.tool);
  return std::move(saved);
}

}  // namespace

std::optional<ResumedFrom> Saves::origin() const {
  if (!resumed) return std::nullopt;
  return ResumedFrom{.step = start().step, .run_id = resumed->manifest().run.run_id};
}

/// A link such as `latest` may be in the way of a comparison by name.
bool Saves::moves() const {
  if (!resumed || !saver) return false;
  std::error_code none_yet;
  return !std::filesystem::equivalent(
      std::filesystem::canonical(resumed->folder(), none_yet).parent_path(), saver->folder(),
      none_yet);
}

void Saves::attach_to(TrainInputs& inputs) {
  inputs.start = start();
  inputs.keeps_start = moves();
  inputs.source = resumed ? &*resumed : nullptr;
  inputs.keeper = saver ? &*saver : nullptr;
}

Result<Saves> open_saves(const ExecOptions& options, const Session& session, const RunResult& run,
                         const TrainSettings& settings, const Dataset& data, const Program& program,
                         bool leads) {
  Saves saves;
  if (!options.save && !options.resume) return saves;
  MFSDP_LET(identity, identity_of(run, settings, data));
  if (options.resume) {
    MFSDP_LET(resumed, open_resumed(*options.resume, session, identity, program, leads));
    saves.resumed.emplace(std::move(resumed));
  }
  if (!options.save) return saves;
  SaveSettings to;
  to.folder = *options.save;
  to.every = options.save_every;
  to.kept = options.keep_saves;
  if (leads) MFSDP_TRY(SaveFolder::open(to.folder, to.probe));  // fails now rather than after hours
  const std::string folder = to.folder.string();
  std::error_code unreadable;  // then the folder could not be opened
  const bool holds_saves = std::filesystem::exists(to.folder / kLatestName, unreadable);
  saves.saver.emplace(std::move(to), std::move(identity));
  if (holds_saves && (!saves.resumed || saves.moves()))
    return fail("--save", fmt::format("{} holds saves of another run, which this one would remove: "
                                      "go on from them (--resume {}) or name another folder",
                                      folder, folder));
  return saves;
}

}  // namespace mfsdp
