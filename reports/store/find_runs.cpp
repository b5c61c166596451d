#include "reports/store/find_runs.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <optional>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kShortId = 8;
constexpr std::size_t kShownName = 40;
constexpr std::size_t kNamed = 4;  ///< candidates that an error names

std::string quoted(const std::string& word) { return "'" + printable(word.substr(0, 200)) + "'"; }

std::string candidates_text(std::span<const StoredRun> runs) {
  std::string text;
  for (const StoredRun& run : runs.first(std::min(kNamed, runs.size())))
    text += fmt::format("{}row {} = {}", text.empty() ? "" : ", ", run.id, short_name(run));
  return runs.size() > kNamed ? text + ", ..." : text;
}

std::string group_text(const RunGroup& group) {
  return fmt::format("{} on {} x {}, {}", printable(group.model_name), group.gpus,
                     printable(group.gpu), group.source);
}

/// " with --model llama*, --kind measured": what narrows the runs; empty where nothing does.
std::string filter_text(const RunFilter& filter) {
  std::string text;
  const auto add = [&](std::string_view flag, const std::string& value) {
    text += fmt::format("{} {} {}", text.empty() ? " with" : ",", flag, value);
  };
  const auto words = [&](std::string_view flag, const std::optional<std::string>& value) {
    if (value) add(flag, quoted(*value));
  };
  const auto time = [&](std::string_view flag, const std::optional<std::int64_t>& unix_ns) {
    if (unix_ns)
      add(flag, fmt::format("{:%Y-%m-%dT%H:%M:%S}",
                            fmt::gmtime(static_cast<std::time_t>(*unix_ns / 1'000'000'000))));
  };
  words("--model", filter.model);
  words("--cluster", filter.cluster);
  if (filter.gpus) add("--gpus", fmt::format("{}", *filter.gpus));
  if (filter.kind) add("--kind", std::string(to_string(*filter.kind)));
  words("--commit", filter.commit);
  words("--name", filter.name);
  time("--since", filter.since_ns);
  time("--until", filter.until_ns);
  return text;
}

/// One run alone, or what is wrong with there being none or several.
Result<StoredRun> only_one(std::vector<StoredRun> runs, const std::string& word,
                           std::string_view what, const RunFilter& filter) {
  if (runs.size() == 1) return std::move(runs.front());
  if (runs.empty())
    return fail(quoted(word), fmt::format("{} no run of the store{}", what, filter_text(filter)));
  return fail(quoted(word),
              fmt::format("{} several runs: {}; name one", what, candidates_text(runs)));
}

constexpr std::int64_t kSeveral = static_cast<std::int64_t>(kNamed) + 1;

/// The best of its group; an error if the query reaches more groups than one.
Result<StoredRun> only_of_group(Store& store, RunQuery query, const std::string& word) {
  query.limit = 1;
  MFSDP_LET(best, store.list(query));
  if (best.empty())
    return fail(quoted(word),
                (query.mark   ? "no such run has that mark"
                 : query.like ? fmt::format("no run of {} has a speed, fits and is complete",
                                            group_text(*query.like))
                              : "no such run has a speed, fits and is complete") +
                    filter_text(query.filter));
  if (query.like) return best.front();
  query.unlike = group_of(best.front());
  MFSDP_LET(others, store.list(query));
  if (others.empty()) return best.front();
  return fail(
      quoted(word),
      fmt::format("there is one for each of several models, clusters and kinds, such as "
                  "{}, and {}: narrow by --model, --cluster, --gpus and --kind",
                  group_text(group_of(best.front())), group_text(group_of(others.front()))));
}

Result<StoredRun> find_by_rule(Store& store, const std::string& word, RunQuery query,
                               const StoredRun* like) {
  if (word == "@latest") {
    query.order = RunOrder::newest;
    query.limit = 1;
    MFSDP_LET(runs, store.list(query));
    return only_one(std::move(runs), word, "names", query.filter);
  }
  if (like != nullptr) query.like = group_of(*like);
  if (word == "@best") {
    query.order = RunOrder::fastest;
    return only_of_group(store, std::move(query), word);
  }
  query.mark = word.substr(1);
  if (query.like) {
    MFSDP_LET(marked, store.list(query));
    if (marked.empty()) query.like.reset();  // a prediction may be held against a measured baseline
  }
  return only_of_group(store, std::move(query), word);
}

std::optional<std::int64_t> row_number(const std::string& word) {
  std::int64_t row = 0;
  const char* end = word.data() + word.size();
  const auto [stop, code] = std::from_chars(word.data(), end, row);
  return code == std::errc() && stop == end && row > 0 ? std::optional(row) : std::nullopt;
}

constexpr std::string_view kByRow = "row:";
constexpr std::string_view kById = "id:";
constexpr std::string_view kByName = "name:";

/// "row:12", "id:3fa9" and "name:TEXT", which mean one thing; nothing for other words.
std::optional<Result<StoredRun>> find_explicitly(Store& store, const std::string& word,
                                                 RunQuery query) {
  const auto find = [&]() -> Result<StoredRun> {
    MFSDP_LET(runs, store.list(query));
    const auto whole = std::ranges::find(runs, query.id_prefix, &StoredRun::run_id);
    if (whole != runs.end()) return *whole;
    return only_one(std::move(runs), word, "names", query.filter);
  };
  if (word.starts_with(kByName)) {
    query.exact_name = word.substr(kByName.size());
    return find();
  }
  if (word.starts_with(kById)) {
    query.id_prefix = word.substr(kById.size());
    return find();
  }
  if (!word.starts_with(kByRow)) return std::nullopt;
  query.row = row_number(word.substr(kByRow.size()));
  if (!query.row) return fail(quoted(word), "expected a row such as row:12");
  return find();
}

/// The possible meanings of a plain word.
struct Meanings {
  std::vector<StoredRun> row = {};
  std::vector<StoredRun> begun = {};  ///< run_ids that begin so, or the one that is the word
  std::vector<StoredRun> named = {};
};

/// A beginning of fewer characters gives way to a row: some run_id begins with nearly every short
/// number.
constexpr std::size_t kLongBeginning = 4;

Result<Meanings> meanings_of(Store& store, const std::string& word, const RunQuery& query) {
  Meanings found;
  RunQuery next = query;
  next.id_prefix = word;
  MFSDP_LET(begun, store.list(next));
  const auto whole = std::ranges::find(begun, word, &StoredRun::run_id);
  if (whole != begun.end())
    found.begun = {*whole};
  else
    found.begun = std::move(begun);
  next = query;
  next.exact_name = word;
  MFSDP_SET(found.named, store.list(next));
  if (const auto row = row_number(word)) {
    next = query;
    next.row = row;
    MFSDP_SET(found.row, store.list(next));
    const bool is_whole = found.begun.size() == 1 && found.begun.front().run_id == word;
    if (!found.row.empty() && word.size() < kLongBeginning && !is_whole) found.begun.clear();
  }
  return found;
}

bool is_hexadecimal(const std::string& word) {
  return word.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// The run, where all meanings are that one.
Result<StoredRun> one_meaning(Meanings meanings, const std::string& word, const RunFilter& filter) {
  std::vector<StoredRun> all;
  std::size_t kinds = 0;
  for (auto* runs : {&meanings.row, &meanings.begun, &meanings.named}) {
    kinds += runs->empty() ? 0 : 1;
    for (const StoredRun& run : *runs)
      if (std::ranges::find(all, run.id, &StoredRun::id) == all.end()) all.push_back(run);
  }
  if (kinds < 2) {
    const bool is_beginning = !meanings.begun.empty();
    return only_one(std::move(all), word,
                    is_beginning           ? "is the beginning of"
                    : is_hexadecimal(word) ? "names"
                                           : "is the name of",
                    filter);
  }
  if (all.size() == 1) return std::move(all.front());
  return fail(quoted(word),
              fmt::format("may be a row, the beginning of a run_id or a name, of several runs: {}; "
                          "use row:N, id:BEGINNING or name:TEXT",
                          candidates_text(all)));
}

}  // namespace

RunGroup group_of(const StoredRun& run) {
  return {.model_name = run.model_name, .gpu = run.gpu, .gpus = run.gpus, .source = run.source};
}

std::string short_name(const StoredRun& run) {
  std::string text = printable(run.run_id.substr(0, kShortId));
  if (!run.name.empty()) text += " (" + printable(run.name.substr(0, kShownName)) + ")";
  return text;
}

Result<StoredRun> find_run(Store& store, const std::string& word, const RunFilter& filter,
                           const StoredRun* like) {
  RunQuery query;
  query.filter = filter;
  if (word.starts_with('@')) return find_by_rule(store, word, std::move(query), like);
  if (word.empty()) return fail("RUN", "expected a run's id, row, name or @latest, found ''");
  query.limit = kSeveral;
  if (const auto explicitly = find_explicitly(store, word, query)) return *explicitly;
  MFSDP_LET(meanings, meanings_of(store, word, query));
  return one_meaning(std::move(meanings), word, filter);
}

Result<std::vector<StoredRun>> find_runs(Store& store, std::span<const std::string> words,
                                         const RunFilter& filter) {
  if (words.empty()) return store.list({.filter = filter});
  std::vector<std::optional<StoredRun>> found(words.size());
  const auto depends = [](const std::string& word) {
    return word.starts_with('@') && word != "@latest";
  };
  const StoredRun* like = nullptr;
  for (const bool dependent : {false, true})
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (depends(words[i]) != dependent) continue;
      MFSDP_SET(found[i], find_run(store, words[i], filter, like));
      if (like == nullptr) like = &*found[i];
    }
  std::vector<StoredRun> runs;
  for (auto& run : found) runs.push_back(std::move(*run));
  return runs;
}

}  // namespace mfsdp
