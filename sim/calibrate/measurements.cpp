#include "sim/calibrate/measurements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <utility>

#include "core/base/byte_order_mark.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "sim/calibrate/nccl_run.hpp"
#include "sim/calibrate/table_cells.hpp"
#include "sim/cost/csv.hpp"
#include "sim/cost/nccl.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

template <class T>
void append(std::vector<T>& all, std::vector<T> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

/// An error if a stated rate does not agree with the time in its row: tolerance 2 % plus
/// `rounding`, half of its last digit.
Result<void> check_rate(const CsvTable& table, std::size_t row, std::string_view name,
                        double expected, double rounding) {
  if (!table.has_column(name)) return {};
  MFSDP_LET(stated, number_cell(table, row, name));
  if (std::abs(stated - expected) <= rounding + 0.02 * expected) return {};
  return fail(table.place(row),
              fmt::format("{} is {:g}, but the row's time makes {:.4g}; the units "
                          "do not fit",
                          name, stated, expected));
}

Result<void> check_gemm(const CsvTable& table) {
  if (!table.has_column("ms")) return {};
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MFSDP_LET(m, number_cell(table, row, "M"));
    MFSDP_LET(n, number_cell(table, row, "N"));
    MFSDP_LET(k, number_cell(table, row, "K"));
    MFSDP_LET(ms, number_cell(table, row, "ms"));
    MFSDP_TRY(check_rate(table, row, "tflops", 2 * m * n * k / (ms * 1e9), 0.051));
  }
  return {};
}

/// Causal attention: 2 B S S heads head_dim FLOPs forward, 2.5 times that backward.
Result<void> check_attention(const CsvTable& table, const std::vector<AttentionRow>& rows) {
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const AttentionRow& at = rows[row];
    const double flops =
        (at.backward ? 5.0 : 2.0) * at.batch * at.seq * at.seq * at.heads * at.head_dim;
    MFSDP_TRY(check_rate(table, row, "tflops_causal", flops / (at.ns * 1e3), 0.051));
  }
  return {};
}

Result<std::vector<CollectiveSample>> samples_of_table(const CsvTable& table) {
  struct Column {
    CollectiveKind kind;
    std::string_view time;
    std::string_view bus;
  };
  constexpr std::array<Column, 3> kColumns{{{CollectiveKind::all_gather, "ag_ms", "ag_busbw"},
                                            {CollectiveKind::reduce_scatter, "rs_ms", "rs_busbw"},
                                            {CollectiveKind::all_reduce, "ar_ms", "ar_busbw"}}};
  std::vector<CollectiveSample> samples;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MFSDP_LET(ranks, integer_cell(table, row, "n"));
    MFSDP_LET(mebibytes, number_cell(table, row, "mbytes"));
    if (ranks < 2 || ranks > 65536) return fail(table.place(row), "n: expected 2 to 65536 GPUs");
    const double bytes = mebibytes * kMebibyte;
    for (const Column& column : kColumns) {
      MFSDP_LET(ms, number_cell(table, row, column.time));
      const double wire = wire_bytes(column.kind, bytes, static_cast<double>(ranks));
      MFSDP_TRY(check_rate(table, row, column.bus, wire / (ms * 1e6), 0.051));
      samples.push_back({.kind = column.kind,
                         .ranks = ranks,
                         .nodes = 1,
                         .bytes = Bytes(std::llround(bytes)),
                         .ns = ms * 1e6,
                         .place = table.place(row)});
    }
  }
  return samples;
}

enum class TableKind { gemm, attention, domain_collectives, copies, collectives };

/// The kind of table, of those in README.md, with this header.
std::optional<TableKind> kind_of(const std::vector<std::string>& header) {
  const auto has = [&](std::string_view a, std::string_view b) {
    return std::ranges::find(header, a) != header.end() &&
           std::ranges::find(header, b) != header.end();
  };
  if (has("kind", "tflops")) return TableKind::gemm;
  if (has("direction", "head_dim")) return TableKind::attention;
  if (has("n", "mbytes")) return TableKind::domain_collectives;
  if (has("bytes_moved", "ms")) return TableKind::copies;
  if (has("collective", "gpus")) return TableKind::collectives;
  return std::nullopt;
}

/// The first line that is neither empty nor a note, without surrounding blanks.
std::string_view first_line_of(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
    return line;
  }
  return {};
}

/// A complete line "[table]" or "key = value".
bool is_toml_line(std::string_view line) {
  const auto is_key = [](std::string_view key) {
    const auto allowed = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             c == '_' || c == '-' || c == '.' || c == '"';
    };
    return !key.empty() && std::ranges::all_of(key, allowed);
  };
  if (line.starts_with('[') && line.ends_with(']')) return is_key(line.substr(1, line.size() - 2));
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return false;
  return is_key(line.substr(0, line.find_last_not_of(" \t", equals - 1) + 1));
}

/// The error for a text without a known header.
std::string unknown_format(std::string_view text) {
  constexpr std::size_t kShown = 60;
  constexpr std::string_view kExpected =
      "expected one of: output of nccl-tests (text or -J); a trace of PyTorch's profiler; a CSV "
      "with a header kind,M,N,K,tflops; direction,B,S,heads,head_dim,ms; "
      "n,mbytes,ag_ms,rs_ms,ar_ms; collective,gpus,bytes,us; bytes_moved,ms";
  const std::string_view first = first_line_of(text);
  if (first.empty()) return fmt::format("unknown format: every line is a note; {}", kExpected);
  if (is_toml_line(first)) return fmt::format("is TOML, as for --gpu or --cluster; {}", kExpected);
  return fmt::format("unknown format: first line is \"{}{}\"; {}",
                     printable(first.substr(0, kShown)), first.size() > kShown ? "..." : "",
                     kExpected);
}

std::vector<std::string> places_of(const CsvTable& table) {
  std::vector<std::string> places;
  for (std::size_t row = 0; row < table.rows(); ++row) places.push_back(table.place(row));
  return places;
}

Result<void> read_csv(std::string_view text, const std::string& where, const std::string& name,
                      Measurements& all) {
  const std::vector<std::string> header = CsvTable::header_of(text);
  const auto kind = kind_of(header);
  if (!kind) return fail(where, unknown_format(text));
  MFSDP_LET(table, CsvTable::parse(text, where));
  switch (*kind) {
    case TableKind::gemm: {
      MFSDP_LET(rows, parse_gemm_table(text, where));
      MFSDP_TRY(check_gemm(table));
      append(all.gemm, std::move(rows));
      append(all.gemm_places, places_of(table));
      all.gemm_files.push_back(name);
      return {};
    }
    case TableKind::attention: {
      MFSDP_LET(rows, parse_attention_table(text, where));
      MFSDP_TRY(check_attention(table, rows));
      append(all.attention, std::move(rows));
      append(all.attention_places, places_of(table));
      all.attention_files.push_back(name);
      return {};
    }
    case TableKind::copies: {
      MFSDP_LET(samples, parse_copy_table(text, where));
      append(all.copies, std::move(samples));
      all.copy_files.push_back(name);
      return {};
    }
    case TableKind::domain_collectives:
    case TableKind::collectives: {
      MFSDP_LET(samples, *kind == TableKind::collectives ? parse_collective_samples(text, where)
                                                         : samples_of_table(table));
      append(all.collectives, std::move(samples));
      all.collective_files.push_back(name);
      return {};
    }
  }
  return {};
}

/// Other output may surround nccl-tests' tables, except formats that would have to be read too.
Result<void> check_unmixed(std::string_view text, const std::string& where) {
  if (text.find("\"average_bus_bandwidth\"") != std::string_view::npos)
    return fail(where, "holds nccl-tests' text and its JSON; give each as a file of its own");
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (kind_of(CsvTable::header_of(text.substr(0, end))))
      return fail(fmt::format("{}:{}", where, number),
                  "starts a CSV in the output of nccl-tests; give each as a file of its own");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

Result<void> add_run(const NcclRun& run, Measurements& all) {
  MFSDP_LET(samples, samples_of(run));
  append(all.collectives, std::move(samples));
  if (!run.device.empty() && std::ranges::find(all.devices, run.device) == all.devices.end())
    all.devices.push_back(run.device);
  return {};
}

constexpr std::string_view kGzip = "\x1f\x8b";

/// Traces may be large and are read as streams; their first bytes identify them.
bool is_trace(const std::filesystem::path& file) {
  constexpr std::size_t kHead = 65536;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;  // a pipe is read once
  std::ifstream stream(file, std::ios::binary);
  std::string head(kHead, '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(stream.gcount()));
  return head.starts_with(kGzip) || head.find("\"traceEvents\"") != std::string::npos ||
         (head.starts_with('{') && head.find("\"deviceProperties\"") != std::string::npos);
}

Result<void> read_trace(const std::filesystem::path& file, Measurements& all) {
  MFSDP_LET(trace, traces::read_kineto(file, {.keep_operators = true}));
  MFSDP_LET(run, read_trace_run(trace));
  all.traces.push_back(std::move(run));
  all.trace_files.push_back(file.filename().string());
  return {};
}

Result<void> read_one(const std::filesystem::path& file, Measurements& all) {
  if (is_trace(file)) return read_trace(file, all);
  MFSDP_LET(bytes, read_file(file, "measurements", kMostBytes));
  const std::string_view text = without_byte_order_mark(bytes);
  const std::string where = file.string();
  const std::string name = file.filename().string();
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos)
    return fail(where, "is empty; expected measurements (docs/guide/calibrate.md)");
  const auto control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 127 || (byte < 32 && c != '\n' && c != '\r' && c != '\t' && c != '\x1b');
  };
  if (std::ranges::any_of(text, control) || !is_utf8(text))
    return fail(where,
                "unknown format: holds binary data; expected text, or a trace of PyTorch's "
                "profiler packed by gzip");
  if (text[first] == '{') {
    MFSDP_LET(run, read_nccl_json(text, where));
    MFSDP_TRY(add_run(run, all));
    all.collective_files.push_back(name);
    return {};
  }
  if (!is_nccl_text(text)) return read_csv(text, where, name, all);
  MFSDP_TRY(check_unmixed(text, where));
  MFSDP_LET(runs, read_nccl_text(text, where));
  for (const NcclRun& run : runs) MFSDP_TRY(add_run(run, all));
  all.collective_files.push_back(name);
  return {};
}

}  // namespace

Result<std::vector<CopySample>> parse_copy_table(std::string_view text, const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  std::vector<CopySample> samples;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MFSDP_LET(bytes, number_cell(table, row, "bytes_moved"));
    MFSDP_LET(ms, number_cell(table, row, "ms"));
    MFSDP_TRY(check_rate(table, row, "TB_per_s", bytes / (ms * 1e9), 0.0051));
    samples.push_back({.bytes = bytes, .ns = ms * 1e6, .place = table.place(row)});
  }
  return samples;
}

Result<Measurements> read_measurements(std::span<const std::filesystem::path> files) {
  if (files.empty()) return fail("--calibrate", "expected at least one file of measurements");
  Measurements all;
  for (const std::filesystem::path& file : files) MFSDP_TRY(read_one(file, all));
  if (all.devices.size() > 1)
    return fail("--calibrate",
                fmt::format("the files are of several GPUs: {}; give those of one",
                            printable(fmt::format("{}", fmt::join(all.devices, ", ")))));
  return all;
}

}  // namespace mfsdp
