#include "verify/bugs/renew_row.hpp"

#include <fmt/format.h>

#include <regex>

#include "core/plan/plan_json.hpp"
#include "verify/bugs/bug_row.hpp"
#include "verify/bugs/plan_names.hpp"

namespace mfsdp::bugs {
namespace {

void replace_hash(std::string& text, const std::string& old, const std::string& now) {
  for (std::size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + 1))
    text.replace(at, old.size(), now);
}

/// {"op": 10, "name": "..."} with the id of today, in the plan of a class or in all plans.
std::string with_ids_of_today(const std::string& text, const PlanNames& names) {
  static const std::regex reference(R"re("([a-z]+)": (\d+), "name": "([^"]*)"\})re");
  std::string renewed;
  auto from = text.cbegin();
  for (std::sregex_iterator match(text.begin(), text.end(), reference), end; match != end;
       ++match) {
    const std::smatch& found = *match;
    renewed.append(from, found[0].first);
    from = found[0].second;
    const auto id = names.id_of(found[1].str(), found[3].str());
    renewed += fmt::format(R"("{}": {}, "name": "{}"}})", found[1].str(),
                           id ? fmt::format("{}", *id) : found[2].str(), found[3].str());
  }
  return renewed.append(from, text.cend());
}

/// The same where each edit names the class that it changes before anything else.
std::string with_ids_of_classes(const std::string& text, const Job& job) {
  static const std::string key = "\"class\": \"";
  std::string renewed;
  std::size_t from = 0;
  const Program* of = &job.programs[0];
  while (from < text.size()) {
    const std::size_t at = text.find(key, from + 1);
    renewed += with_ids_of_today(text.substr(from, at - from), PlanNames(*of));
    if (at == std::string::npos) break;
    const std::size_t begin = at + key.size();
    const std::string role = text.substr(begin, text.find('"', begin) - begin);
    for (const Program& program : job.programs)
      if (!program.classes.empty() && program.classes[0].role == role) of = &program;
    from = at;
  }
  return renewed;
}

}  // namespace

Result<std::string> renew_row(std::string_view text, const std::string& file,
                              const BugFolders& folders) {
  MFSDP_LET(row, read_bug_row(text, file));
  MFSDP_LET(base, load_base(row.base, folders, file + ": base"));
  std::string renewed(text);
  replace_hash(renewed, row.base.hash, plan_hash(base));
  Job start = base;
  if (row.broken_base) {
    MFSDP_LET(broken, load_base(*row.broken_base, folders, file + ": broken.base"));
    replace_hash(renewed, row.broken_base->hash, plan_hash(broken));
    start = std::move(broken);
  }
  return with_ids_of_classes(renewed, start);
}

}  // namespace mfsdp::bugs
