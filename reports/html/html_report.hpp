// Runs as one page: a file that needs no network, no server and no other file.
//
//   report.html     skeleton with the places of what follows
//   |- style        page/*.css and uPlot's
//   |- script       third_party/uplot, page/*.js
//   `- data         report_data.hpp: JSON in a block that browsers never execute
//
// The page's policy (CSP) lists the hashes of these styles and scripts and nothing else. So data of
// a run cannot become code, and the page can neither fetch nor send.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

struct HtmlOptions {
  std::string title;               ///< empty: "mfsdp report"
  std::string tool_version;        ///< of the tool that writes the page
  std::int64_t unix_ns = 0;        ///< when it is written
  std::size_t most_points = 4000;  ///< of a curve; of longer ones the lows and highs of each part
  /// The program of a run's plan, or null where it is not known: FLOPs, bytes, waits and buffers
  /// are then shown as not stored. Asked once for each plan.
  std::function<std::shared_ptr<const Program>(const RunResult&)> program;
};

/// The page. Texts of runs are data wherever they stand; bytes that are not UTF-8 become the
/// replacement character. Throws OverflowError where times or bytes leave 63 bits.
[[nodiscard]] std::string html_report(std::span<const RunResult> runs, const HtmlOptions& options);

}  // namespace mfsdp
