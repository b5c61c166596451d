// Runs by what people call them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {

/// Who may be meant by `word`, among the runs that the filter lets through:
///   @latest        the run that was stored last
///   @best          most tokens/s per GPU, of runs like `like`; without one, all runs that the
///                  filter lets through must be of one model, cluster and kind
///   @baseline      the run with that mark (any other mark too): the one that is like `like`, else
///                  the only one
///   row:12, id:3fa9, name:TEXT   that row, the run whose run_id begins so, the one of that name
///   12             row 12, where there is one
///   3fa9           the run whose run_id begins so, or is so
///   a run's name   where only one run has it
/// A plain word that means several runs in these ways is an error; only a row goes before run_ids
/// that begin with the same one to three digits. Errors name the word, and the candidates where
/// there are several.
[[nodiscard]] Result<StoredRun> find_run(Store& store, const std::string& word,
                                         const RunFilter& filter = {},
                                         const StoredRun* like = nullptr);

/// Each word's run, in order; no words: every run that the filter lets through. The first run that
/// is named by itself is what @best and marks have to be like.
[[nodiscard]] Result<std::vector<StoredRun>> find_runs(Store& store,
                                                       std::span<const std::string> words,
                                                       const RunFilter& filter = {});

/// How messages name a run: "3fa91b2c (name)".
[[nodiscard]] std::string short_name(const StoredRun& run);

}  // namespace mfsdp
