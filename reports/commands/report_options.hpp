// The flags that the commands of mfsdp-report share.
#pragma once

#include <string>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/flags.hpp"
#include "reports/store/run_query.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {

struct ReportOptions {
  std::vector<std::string> words = {};  ///< runs or files, in order
  std::string db = "mfsdp.sqlite";
  OutputFormat output = OutputFormat::text;
  RunFilter filter = {};
  bool help = false;
  bool version = false;
  std::vector<std::string> notes = {};  ///< on the flags, for stderr
};

// Flag groups, bound to `options`, which must outlive the parsing.

/// --model, --cluster, --gpus, --kind, --commit, --name, --since, --until.
[[nodiscard]] FlagGroup filter_flags(ReportOptions& options);

/// --db, --output, --help, --version.
[[nodiscard]] FlagGroup store_flags(ReportOptions& options);

/// Unix nanoseconds of "2026-11-23", "2026-11-23T07:55" (with seconds or without, UTC), or of so
/// long before `now`: "90m", "12h", "7d", "2w". The error names `flag`.
[[nodiscard]] Result<std::int64_t> parse_time(const std::string& text, std::string_view flag,
                                              std::int64_t now_ns);

/// The store that --db names, which must be there.
[[nodiscard]] Result<Store> open_store(const ReportOptions& options);

}  // namespace mfsdp
