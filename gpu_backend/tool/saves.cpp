#include "gpu_backend/tool/saves.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/cli/exit_code.hpp"
#include "gpu_backend/checkpoint/agreement.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

Result<RunIdentity> identity_of(const RunHead& run, const TrainSettings& settings,
                                const Dataset& data) {
  MFSDP_LET(told_apart, identify(data, run.config.seq_len, run.config.document_mask));
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
  if (!saved.manifest().has_checksum)
    warnings.emplace_back(
        "has no checksum, as saves of earlier versions: only what contradicts itself is noticed");
  for (const std::string& warning : warnings)
    if (leads) report_warning(session.err, manifest + ": " + warning, session.tool);
  return std::move(saved);
}

/// The save that the run resumes from; none if it begins.
std::optional<std::string> path_to_resume(const ExecOptions& options) {
  if (!options.resumes_if_it_can()) return options.resume;
  return holds_saves(*options.save) ? options.save : std::nullopt;
}

/// A folder in `folder` that no save has created.
std::optional<fs::path> other_folder_in(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool is_of_disk = name == "lost+found";
    if (at->is_directory(error) && !is_name_of_save(name) && !is_of_disk) return at->path();
  }
  return std::nullopt;
}

}  // namespace

Result<void> check_save_folder(const ExecOptions& options) {
  if (!options.save) return {};
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(*options.save, ignored);
  const auto refuse = [&](const std::string& what) {
    return fail("--save", fmt::format("{} {}: name a new folder, or one with saves",
                                      printable(*options.save), what));
  };
  if (folder == folder.root_path()) return refuse("is the root of all files");
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0' && fs::equivalent(folder, home, ignored))
    return refuse("is your home folder");
  if (fs::exists(folder.parent_path() / kManifestName, ignored)) return refuse("lies in a save");
  if (holds_saves(folder)) return {};
  if (const auto other = other_folder_in(folder))
    return refuse(fmt::format("holds other folders, such as {}, and no saves",
                              printable(other->filename().string())));
  return {};
}

std::optional<ResumedFrom> Saves::origin() const {
  if (!resumed) return std::nullopt;
  return ResumedFrom{.step = start().step, .run_id = resumed->manifest().run.run_id};
}

Result<void> lock_save_folder(const ExecOptions& options, const Session& session,
                              std::optional<RunLock>& lock) {
  if (!options.save || lock) return {};
  const CommonOptions& common = options.common;
  const std::string& run = !common.name.empty()    ? common.name
                           : !common.model.empty() ? common.model
                                                   : *common.plan;
  MFSDP_LET(taken, RunLock::take(*options.save, run));
  lock.emplace(std::move(taken));
  if (!lock->missing().empty())
    report_warning(session.err,
                   fmt::format("{} cannot be locked ({}): see to it that no other run saves there",
                               printable(*options.save), lock->missing()),
                   session.tool);
  return {};
}

/// Compares after resolving links such as `latest`.
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

Result<Saves> open_saves(const ExecOptions& options, const Session& session, const RunHead& run,
                         const TrainSettings& settings, const Dataset& data, const Program& program,
                         bool leads) {
  Saves saves;
  if (!options.save && !options.resume) return saves;
  MFSDP_LET(identity, identity_of(run, settings, data));
  if (const auto path = path_to_resume(options)) {
    MFSDP_LET(resumed, open_resumed(*path, session, identity, program, leads));
    saves.resumed.emplace(std::move(resumed));
  }
  if (!options.save) return saves;
  SaveSettings to;
  to.folder = *options.save;
  to.every = options.save_every;
  to.kept = options.keep_saves;
  if (leads) MFSDP_TRY(SaveFolder::open(to.folder, to.probe));  // fails now instead of after hours
  const std::string folder = to.folder.string();
  const bool is_used = holds_saves(to.folder);
  saves.saver.emplace(std::move(to), std::move(identity), saves.start());
  if (is_used && (!saves.resumed || saves.moves()))
    return fail("--save", fmt::format("{} holds saves of another run, which this one would remove: "
                                      "go on from them (--resume auto) or name another folder",
                                      folder));
  return saves;
}

}  // namespace mfsdp
