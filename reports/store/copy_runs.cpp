#include "reports/store/copy_runs.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace mfsdp {
namespace {

Result<bool> has_run(Store& store, const std::string& run_id) {
  RunQuery query;
  query.id_prefix = run_id;
  MFSDP_LET(runs, store.list(query));
  return std::ranges::find(runs, run_id, &StoredRun::run_id) != runs.end();
}

}  // namespace

Result<Copied> save_new(Store& store, std::span<const RunResult> runs) {
  Copied copied;
  std::vector<RunResult> fresh;
  std::set<std::string> seen;
  for (const RunResult& run : runs) {
    MFSDP_LET(there, has_run(store, run.run_id));
    if (there || !seen.insert(run.run_id).second)
      copied.there_before.push_back(run.run_id);
    else
      fresh.push_back(run);
  }
  MFSDP_LET(rows, store.save_all(fresh));
  copied.rows = std::move(rows);
  return copied;
}

Result<Copied> copy_runs(Store& from, std::span<const StoredRun> runs, Store& to) {
  constexpr std::size_t kAtOnce = 32;
  Copied copied;
  for (std::size_t begin = 0; begin < runs.size(); begin += kAtOnce) {
    std::vector<RunResult> some;
    for (const StoredRun& run : runs.subspan(begin, std::min(kAtOnce, runs.size() - begin))) {
      MFSDP_LET(loaded, from.load(run.id));
      some.push_back(std::move(loaded));
    }
    MFSDP_LET(part, save_new(to, some));
    copied.rows.insert(copied.rows.end(), part.rows.begin(), part.rows.end());
    copied.there_before.insert(copied.there_before.end(), part.there_before.begin(),
                               part.there_before.end());
  }
  for (const StoredRun& run : runs)
    for (const std::string& mark : run.marks) {
      RunQuery query;
      query.id_prefix = run.run_id;
      MFSDP_LET(found, to.list(query));
      if (!found.empty()) MFSDP_TRY(to.mark(found.front().id, mark));
    }
  return copied;
}

}  // namespace mfsdp
