#include "verify/traces/inspector_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/text.hpp"
#include "core/formats/json_fields.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

/// NCCL numbers the calls of each function separately.
using CallName = std::pair<std::string, std::int64_t>;  ///< "AllGather", number

struct RankLog {
  std::string where;  ///< the rank's only file
  std::map<CallName, RecordedCall> calls;
};

struct Communicator {
  std::int64_t ranks = 0;
  std::string where;  ///< file and line that first gave `ranks`
  std::map<std::int64_t, RankLog> logs;
};

using Communicators = std::map<std::string, Communicator>;

Result<RankLog*> log_of(Communicators& all, const nlohmann::json& header, const std::string& file,
                        const std::string& where) {
  MFSDP_LET(id, text_field(header, "id", where));
  MFSDP_LET(ranks, integer_field(header, "n_ranks", where, {1, kMostRanks}));
  MFSDP_LET(rank, integer_field(header, "rank", where, {0, ranks - 1}));
  Communicator& communicator = all[id];
  if (communicator.ranks == 0) communicator = {.ranks = ranks, .where = where, .logs = {}};
  if (communicator.ranks != ranks)
    return fail(where,
                fmt::format("communicator {} has {} ranks, but {} at {}: expected logs of one "
                            "job",
                            printable(id), ranks, communicator.ranks, communicator.where));
  RankLog& log = communicator.logs[rank];
  if (log.where.empty()) log.where = file;
  if (log.where != file)
    return fail(where,
                fmt::format("rank {} of communicator {} is also in {}: expected one file for "
                            "each process",
                            rank, printable(id), log.where));
  return &log;
}

Result<void> add_line(Communicators& all, std::string_view line, const std::string& file,
                      const std::string& where) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return fail(where, "expected a JSON object");
  MFSDP_LET(header, object_field(json, "header", where));
  MFSDP_LET(log, log_of(all, *header, file, where + ".header"));
  if (find_field(json, "coll_perf") == nullptr && find_field(json, "p2p_perf") != nullptr)
    return {};
  MFSDP_LET(perf, object_field(json, "coll_perf", where));
  const std::string place = where + ".coll_perf";
  MFSDP_LET(kind, text_field(*perf, "coll", place));
  MFSDP_LET(number, integer_field(*perf, "coll_sn", place));
  MFSDP_LET(bytes, integer_field(*perf, "coll_msg_size_bytes", place));
  RecordedCall call{.key = {.number = number, .part = 0},
                    .kind = kind,
                    .input = {.elements = bytes, .dtype = "bytes"},
                    .state = CallState::completed,
                    .ended = true,
                    .place = ""};
  const auto [at, is_new] = log->calls.try_emplace({kind, number}, call);
  if (at->second.input != call.input)
    return fail(place, fmt::format("{} {} appears twice with different contents: expected the log "
                                   "of one run",
                                   printable(kind), number));
  return {};
}

/// Offset of the last line.
std::size_t last_line(std::string_view bytes) {
  const std::size_t newline = bytes.rfind('\n');
  return newline == std::string_view::npos ? 0 : newline + 1;
}

Result<void> add_file(Communicators& all, const InspectorFile& file) {
  std::string_view rest = file.bytes;
  if (ends_within_a_line(rest)) rest = rest.substr(0, last_line(rest));
  std::int64_t number = 0;
  bool some = false;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    some = true;
    MFSDP_TRY(add_line(all, line, file.where, fmt::format("{}: line {}", file.where, number)));
  }
  if (!some)
    return fail(file.where, "expected a line of JSON for each collective, got an empty file");
  return {};
}

/// Adds a group for each function. All list the ranks that have logs; the first lists the others,
/// too.
void add_groups(std::vector<RecordedGroup>& groups, const std::string& id,
                const Communicator& communicator) {
  std::set<std::string> functions;
  for (const auto& [rank, log] : communicator.logs)
    for (const auto& [name, call] : log.calls) functions.insert(name.first);
  for (const std::string& function : functions) {
    RecordedGroup group{
        .name = id, .ranks = {}, .members = {}, .every_call = false, .pairs = false};
    for (const auto& [rank, log] : communicator.logs) {
      GroupMember member{.rank = rank, .calls = {}, .whole = true};
      for (const auto& [name, call] : log.calls)
        if (name.first == function) member.calls.push_back(call);
      group.members.push_back(std::move(member));
      group.ranks.push_back(rank);
    }
    if (function == *functions.begin()) {
      group.ranks.resize(static_cast<std::size_t>(communicator.ranks));
      std::iota(group.ranks.begin(), group.ranks.end(), 0);
    }
    groups.push_back(std::move(group));
  }
}

}  // namespace

bool ends_within_a_line(std::string_view bytes) {
  const std::size_t begin = last_line(bytes);
  const std::string_view line = bytes.substr(begin);
  return begin > 0 && line.find_first_not_of(" \t\r") != std::string_view::npos &&
         !nlohmann::json::parse(line, nullptr, false).is_object();
}

Result<std::vector<RecordedGroup>> read_inspector_logs(std::span<const InspectorFile> files) {
  Communicators all;
  for (const InspectorFile& file : files) MFSDP_TRY(add_file(all, file));
  std::vector<RecordedGroup> groups;
  for (const auto& [id, communicator] : all) add_groups(groups, id, communicator);
  return groups;
}

}  // namespace mfsdp::traces
