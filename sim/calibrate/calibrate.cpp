#include "sim/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/text.hpp"
#include "sim/calibrate/draft.hpp"
#include "sim/calibrate/fit.hpp"
#include "sim/calibrate/machine_files.hpp"
#include "sim/hardware/power.hpp"

namespace mfsdp {

namespace fs = std::filesystem;

std::string names_of(const std::vector<std::string>& files) {
  return printable(fmt::format("{}", fmt::join(files, ", ")));
}

void set_source(Gpu& gpu, const std::string& key, std::string source) {
  const auto found =
      std::ranges::find(gpu.sources, key, &std::pair<std::string, std::string>::first);
  if (found == gpu.sources.end())
    gpu.sources.emplace_back(key, std::move(source));
  else
    found->second = std::move(source);
}

void note_value(Draft& draft, const std::string& key, double value, double base,
                const std::string& source) {
  draft.result.values.push_back({.key = key, .value = value, .base = base, .source = source});
  set_source(draft.gpu, key, source);
}

void note_errors(Draft& draft, std::string group, std::string what, std::span<const double> errors,
                 Evaluation evaluation, const std::string& source) {
  draft.result.errors.push_back({.group = std::move(group),
                                 .what = std::move(what),
                                 .error = summarise(errors),
                                 .evaluation = evaluation,
                                 .tier = Tier::calibrated,
                                 .source = source});
}

namespace {

/// A row that stands twice would predict itself when left out.
template <class Row, class Key>
Result<void> check_distinct(const std::vector<Row>& rows, Key key, std::string_view what) {
  std::set<decltype(key(rows.front()))> seen;
  for (const Row& row : rows)
    if (!seen.insert(key(row)).second)
      return fail("--calibrate", fmt::format("{} is measured twice; give each once", what));
  return {};
}

Result<void> add_gemm(Draft& draft) {
  const std::vector<GemmRow>& rows = draft.data.gemm;
  if (rows.empty()) return {};
  MFSDP_TRY(check_distinct(
      rows, [](const GemmRow& row) { return std::tuple(row.kind, row.m, row.n, row.k); },
      "a shape of GEMM"));
  const std::string source =
      fmt::format("measured: {} GEMMs of {}", rows.size(), names_of(draft.data.gemm_files));
  draft.tables.gemm = rows;
  draft.gpu.tables.gemm = draft.file_name("_gemm.csv");
  draft.gpu.table_sms = draft.gpu.sms;
  draft.gpu.measured.gemm = true;
  // Measured under the GPU's own limit on power.
  draft.gpu.gemm_scale = 1 / power_rate(draft.gpu);
  note_value(draft, "compute.gemm_scale", draft.gpu.gemm_scale, draft.base.gemm_scale, source);
  set_source(draft.gpu, "tables.gemm", source);
  draft.result.files.push_back({draft.beside("_gemm.csv"), gemm_csv(rows)});
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out}) {
    std::vector<double> all;
    for (const GemmKind kind :
         {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
      const std::vector<double> errors = gemm_errors(rows, draft.gpu, kind, evaluation);
      all.insert(all.end(), errors.begin(), errors.end());
    }
    note_errors(draft, "GEMM", "all", all, evaluation, names_of(draft.data.gemm_files));
  }
  return {};
}

/// The base's table of mfsdp-exec's own kernels has no scale but that of the measured one.
void keep_warpgroups_if_scaled_alike(Draft& draft) {
  if (draft.gpu.attention_scale == draft.base.attention_scale) return;
  draft.gpu.tables.attention_warpgroups.clear();
  draft.tables.attention_warpgroups.clear();
  std::erase_if(draft.gpu.sources,
                [](const auto& source) { return source.first == "tables.attention_warpgroups"; });
}

Result<void> add_attention(Draft& draft) {
  const std::vector<AttentionRow>& rows = draft.data.attention;
  if (rows.empty()) return {};
  const auto key = [](const AttentionRow& row) {
    return std::tuple(row.backward, row.batch * row.heads, row.seq, row.head_dim);
  };
  MFSDP_TRY(check_distinct(rows, key, "a shape of attention"));
  const std::string source =
      fmt::format("measured: {} shapes of {}", rows.size(), names_of(draft.data.attention_files));
  draft.tables.attention = rows;
  draft.gpu.tables.attention = draft.file_name("_attention.csv");
  draft.gpu.measured.attention = true;
  draft.gpu.attention_scale = 1 / power_rate(draft.gpu);
  note_value(draft, "compute.attention_scale", draft.gpu.attention_scale,
             draft.base.attention_scale, source);
  set_source(draft.gpu, "tables.attention", source);
  keep_warpgroups_if_scaled_alike(draft);
  draft.result.files.push_back({draft.beside("_attention.csv"), attention_csv(rows)});
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out})
    for (const bool backward : {false, true})
      note_errors(draft, "attention", backward ? "backward" : "forward",
                  attention_errors(rows, draft.gpu, backward, evaluation), evaluation,
                  names_of(draft.data.attention_files));
  return {};
}

Result<void> add_copies(Draft& draft) {
  if (draft.data.copies.empty()) return {};
  const auto size = [](const CopySample& sample) { return sample.bytes; };
  MFSDP_TRY(check_distinct(draft.data.copies, size, "a size of copies"));
  MFSDP_LET(fit, fit_copies(draft.data.copies, draft.base));
  const std::string files = names_of(draft.data.copy_files);
  const std::string source = fmt::format("fitted: {} copies of {}", fit.errors.size(), files);
  draft.gpu.copy_fraction = fit.copy_fraction;
  note_value(draft, "memory.copy_fraction", fit.copy_fraction, draft.base.copy_fraction, source);
  if (fit.launch) {
    draft.gpu.launch = *fit.launch;
    note_value(draft, "compute.launch_ns", static_cast<double>(fit.launch->value),
               static_cast<double>(draft.base.launch.value), source);
  }
  note_errors(draft, "copy", "from 128 MiB moved", fit.errors, Evaluation::fit, files);
  if (!fit.left_out.empty())
    note_errors(draft, "copy", "from 128 MiB moved", fit.left_out, Evaluation::leave_one_out,
                files);
  return {};
}

/// Every value that no measurement determined keeps the base's, and its source says so.
void take_over_sources(Draft& draft) {
  for (auto& [key, source] : draft.gpu.sources)
    source = fmt::format("taken over from {}: {}", draft.base.name, source);
  for (const char* key : {"compute.bf16_tflops",
                          "compute.fp32_tflops",
                          "compute.sms",
                          "compute.gemm_scale",
                          "compute.attention_scale",
                          "compute.launch_ns",
                          "memory.capacity_bytes",
                          "memory.gb_per_s",
                          "memory.copy_fraction",
                          "memory.runtime_bytes",
                          "memory.host_gb_per_s",
                          "link.gb_per_s",
                          "link.efficiency",
                          "link.domain",
                          "link.collective_sms",
                          "node.gpus",
                          "node.nics",
                          "node.nic_gb_per_s",
                          "node.nic_latency_ns",
                          "node.host_launch_ns",
                          "compute.l2_bytes",
                          "tables.gemm",
                          "tables.attention",
                          "tables.collective"})
    if (std::ranges::find(draft.gpu.sources, key, [](const auto& entry) { return entry.first; }) ==
        draft.gpu.sources.end())
      set_source(draft.gpu, key, "taken over from " + draft.base.name);
  if (!draft.gpu.tables.attention_warpgroups.empty())
    set_source(draft.gpu, "tables.attention_warpgroups", "taken over from " + draft.base.name);
}

/// As it will be found from the new file: by name in the catalogue, or where it lies.
fs::path taken_over(const fs::path& table, const fs::path& gpus_dir) {
  if (table.empty()) return {};
  const fs::path inside = table.lexically_relative(gpus_dir);
  const bool below = !inside.empty() && *inside.begin() != "..";
  return below ? inside : fs::absolute(table);
}

/// Published tables stay beside what was measured, as far as nothing measured replaces them.
void keep_published(Draft& draft) {
  Gpu& gpu = draft.gpu;
  if (!gpu.published) return;
  const bool products = gpu.tables.gemm.filename() != draft.base.tables.gemm.filename() ||
                        gpu.gemm_scale != draft.base.gemm_scale;
  const bool attention =
      gpu.tables.attention.filename() != draft.base.tables.attention.filename() ||
      gpu.attention_scale != draft.base.attention_scale;
  if (products) {
    gpu.published->gemm.clear();
    gpu.published->grouped.clear();  // relative to the products of the same source
  }
  if (attention) gpu.published->attention.clear();
  if (!gpu.published->gemm.empty() || !gpu.published->attention.empty()) return;
  gpu.published.reset();
  gpu.default_tables.reset();
  std::erase_if(gpu.sources, [](const auto& source) { return source.first == "tables.default"; });
}

void note_device(Draft& draft) {
  for (const std::string& device : draft.data.devices) {
    std::string chip = draft.base.name.substr(0, draft.base.name.find('_'));
    for (char& c : chip) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (device.find(chip) == std::string::npos)
      draft.result.notes.push_back(
          fmt::format("the files were measured on \"{}\", values not measured are {}'s (--gpu)",
                      printable(device), draft.base.name));
  }
}

Result<Calibration> calibrate_checked(const CalibrationRequest& request) {
  MFSDP_LET(data, read_measurements(request.files));
  MFSDP_LET(base, load_gpu(request.gpu, request.gpus_dir));
  MFSDP_LET(tables, load_cost_tables(base.tables));
  Draft draft{.request = request,
              .data = std::move(data),
              .base = base,
              .gpu = base,
              .tables = std::move(tables),
              .inside = {},
              .between = {},
              .result = {}};
  draft.gpu.tables = {
      .gemm = taken_over(base.tables.gemm, request.gpus_dir),
      .attention = taken_over(base.tables.attention, request.gpus_dir),
      .attention_warpgroups = taken_over(base.tables.attention_warpgroups, request.gpus_dir),
      .collective = taken_over(base.tables.collective, request.gpus_dir),
      .network = taken_over(base.tables.network, request.gpus_dir)};
  if (draft.gpu.published)
    for (fs::path* table : {&draft.gpu.published->gemm, &draft.gpu.published->attention,
                            &draft.gpu.published->grouped})
      *table = taken_over(*table, request.gpus_dir);
  take_over_sources(draft);
  note_device(draft);
  MFSDP_TRY(check_possible(draft));
  MFSDP_TRY(add_gemm(draft));
  MFSDP_TRY(add_attention(draft));
  MFSDP_TRY(add_copies(draft));
  MFSDP_TRY(add_collectives(draft));
  MFSDP_TRY(add_traces(draft));
  MFSDP_TRY(check_prices(draft));
  keep_published(draft);
  draft.gpu.calibration =
      draft.gpu.measured == MeasuredParts{true, true, true} ? "measured" : "datasheet";
  const std::string toml = gpu_toml(draft.gpu);
  auto read_back = parse_gpu(toml, request.output.string());
  if (!read_back)
    return fail("--calibrate", "what was measured is of no GPU: " + read_back.error().message());
  draft.result.files.push_back({request.output, toml});
  draft.result.gpu = std::move(*read_back);
  draft.result.gpu.name = request.output.stem().string();
  return std::move(draft.result);
}

}  // namespace

Result<Calibration> calibrate(const CalibrationRequest& request) {
  constexpr std::int64_t kMostDomain = 65536;
  if (request.domain && (*request.domain < 1 || *request.domain > kMostDomain))
    return fail("--calibrate",
                fmt::format("a domain of {} GPUs; expected 1 to {}", *request.domain, kMostDomain));
  try {
    return calibrate_checked(request);
  } catch (const OverflowError& error) {
    return fail("--calibrate", std::string("sizes or times are too large: ") + error.what());
  }
}

}  // namespace mfsdp
