// The data of the page, as JSON of schema mfsdp.report/1. Columns are packed (packed.hpp): "+"
// marks differences. Texts that repeat are stored once, in `texts`, and are referred to by
// position.
//
//   { schema, title, version, unix_ms, texts: [...], categories: [...],
//     plans: [ { hash,                                      of each plan that is known
//                ops: { id+, bytes, flops, waits, awaited },   waits: how many of `awaited` (ids)
//                pools: [name, ...], buffers: { text, category, pool, offset, size, persistent } }
//                ],
//     runs: [ { result: mfsdp.result/1 without lists, plan: position or null,
//               ops: { op+, text+, stream+, kind+, segment+,       of each op
//                      row+, instance+, start+, duration,          of each time, row: which op
//                      copies: [[segment, instance, copy, shift, omitted], ...] },
//               memory: { at+, count, change, again,        `count` changes at each point, each a
//                         category, bytes },                position in these two
//               buffers: { buffer+, slot, begin+, duration, until, again } or null,
//               steps: { step+, duration, tokens, skipped, loss, grad_norm, learning_rate,
//                        of } or null,                      of: how many there were
//               evaluations: [[step, loss, tokens], ...] } ] }
//
// Microbatches that run alike are stored once (reports/store/compress.hpp). `copies`: that instance
// of a segment runs again, `shift` ns later; omitted: approximately. `again`: [first, count,
// copies, period]: `count` entries from `first` on are repeated `copies` times, each time `period`
// ns later. Positions count the copies too.
#pragma once

#include <span>
#include <string>

#include "reports/html/html_report.hpp"

namespace mfsdp {

/// On one line, without `<`, `>`, `&` or line separators, so that any HTML element may contain it.
[[nodiscard]] std::string report_json(std::span<const RunResult> runs, const HtmlOptions& options);

}  // namespace mfsdp
