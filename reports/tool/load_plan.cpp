#include "reports/tool/load_plan.hpp"

#include <fmt/format.h>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/plan/plan_json.hpp"

namespace mfsdp {
namespace {

/// Far above the plan of any built-in model.
constexpr std::size_t kMostPlanBytes = std::size_t{1} << 30;

}  // namespace

Result<Program> load_plan(const std::string& path, const Session& session) {
  MFSDP_LET(text, read_file(path, "a plan", kMostPlanBytes));
  MFSDP_LET(program, program_from_json(text, path));
  if (const auto valid = validate(program.config); !valid)
    return fail(path + ": config", valid.error().message());
  const std::string hash = plan_hash(program);
  if (!program.meta.stored_hash.empty() && program.meta.stored_hash != hash)
    session.err << fmt::format(
        "{}: note: {}: the plan was changed since it was written, its hash is {}\n", session.tool,
        printable(path), hash);
  return std::move(program);
}

}  // namespace mfsdp
