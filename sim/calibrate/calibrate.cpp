#include "sim/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/text.hpp"
#include "sim/calibrate/calibration_state.hpp"
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

void note_value(CalibrationState& state, const std::string& key, double value, double base,
                const std::string& source) {
  state.result.values.push_back({.key = key, .value = value, .base = base, .source = source});
  set_source(state.gpu, key, source);
}

void note_errors(CalibrationState& state, std::string group, std::string what,
                 std::span<const double> errors, Evaluation evaluation, const std::string& source) {
  state.result.errors.push_back({.group = std::move(group),
                                 .what = std::move(what),
                                 .error = summarise(errors),
                                 .evaluation = evaluation,
                                 .trust_level = TrustLevel::calibrated,
                                 .source = source});
}

namespace {

/// A duplicate row would predict itself when left out.
template <class Row, class Key>
Result<void> check_distinct(const std::vector<Row>& rows, Key key, std::string_view what) {
  std::set<decltype(key(rows.front()))> seen;
  for (const Row& row : rows)
    if (!seen.insert(key(row)).second)
      return fail("--calibrate", fmt::format("{} is measured twice; give each once", what));
  return {};
}

/// Leaves out a table of the base: its file, its rows and its source.
template <class Rows>
void leave_out(CalibrationState& state, fs::path& file, Rows& rows, std::string_view key) {
  file.clear();
  rows = {};
  std::erase_if(state.gpu.sources, [&](const auto& source) { return source.first == key; });
}

Result<void> add_gemm(CalibrationState& state) {
  const std::vector<GemmRow>& rows = state.data.gemm;
  if (rows.empty()) return {};
  MFSDP_TRY(check_distinct(
      rows, [](const GemmRow& row) { return std::tuple(row.kind, row.m, row.n, row.k); },
      "a shape of GEMM"));
  const std::string source =
      fmt::format("measured: {} GEMMs of {}", rows.size(), names_of(state.data.gemm_files));
  state.tables.gemm = rows;
  state.gpu.tables.gemm = state.file_name("_gemm.csv");
  state.gpu.table_sms = state.gpu.sms;
  state.gpu.measured.gemm = true;
  // The measurements were made under the GPU's own power limit.
  state.gpu.gemm_scale = 1 / power_rate(state.gpu);
  note_value(state, "compute.gemm_scale", state.gpu.gemm_scale, state.base.gemm_scale, source);
  // The base's table of FP8 has no scale of its own.
  if (state.gpu.gemm_scale != state.base.gemm_scale) {
    leave_out(state, state.gpu.tables.gemm_fp8, state.tables.gemm_fp8, "tables.gemm_fp8");
    leave_out(state, state.gpu.tables.gemm_fp8_blocks, state.tables.fp8_blocks,
              "tables.gemm_fp8_blocks");
  }
  set_source(state.gpu, "tables.gemm", source);
  state.result.files.push_back({state.beside("_gemm.csv"), gemm_csv(rows)});
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out}) {
    std::vector<double> all;
    for (const GemmKind kind :
         {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
      const std::vector<double> errors = gemm_errors(rows, state.gpu, kind, evaluation);
      all.insert(all.end(), errors.begin(), errors.end());
    }
    note_errors(state, "GEMM", "all", all, evaluation, names_of(state.data.gemm_files));
  }
  return {};
}

/// The base's tables of mfsdp-exec's own kernels and of masks have no scale of their own; they use
/// that of the measured table.
void keep_others_if_scaled_alike(CalibrationState& state) {
  if (state.gpu.attention_scale == state.base.attention_scale) return;
  leave_out(state, state.gpu.tables.attention_warpgroups, state.tables.attention_warpgroups,
            "tables.attention_warpgroups");
  leave_out(state, state.gpu.tables.attention_masked, state.tables.attention_masked,
            "tables.attention_masked");
}

Result<void> add_attention(CalibrationState& state) {
  const std::vector<AttentionRow>& rows = state.data.attention;
  if (rows.empty()) return {};
  const auto key = [](const AttentionRow& row) {
    return std::tuple(row.backward, row.batch * row.heads, row.seq, row.head_dim);
  };
  MFSDP_TRY(check_distinct(rows, key, "a shape of attention"));
  const std::string source =
      fmt::format("measured: {} shapes of {}", rows.size(), names_of(state.data.attention_files));
  state.tables.attention = rows;
  state.gpu.tables.attention = state.file_name("_attention.csv");
  state.gpu.measured.attention = true;
  state.gpu.attention_scale = 1 / power_rate(state.gpu);
  note_value(state, "compute.attention_scale", state.gpu.attention_scale,
             state.base.attention_scale, source);
  set_source(state.gpu, "tables.attention", source);
  keep_others_if_scaled_alike(state);
  state.result.files.push_back({state.beside("_attention.csv"), attention_csv(rows)});
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out})
    for (const bool backward : {false, true})
      note_errors(state, "attention", backward ? "backward" : "forward",
                  attention_errors(rows, state.gpu, backward, evaluation), evaluation,
                  names_of(state.data.attention_files));
  return {};
}

Result<void> add_copies(CalibrationState& state) {
  if (state.data.copies.empty()) return {};
  const auto size = [](const CopySample& sample) { return sample.bytes; };
  MFSDP_TRY(check_distinct(state.data.copies, size, "a size of copies"));
  MFSDP_LET(fit, fit_copies(state.data.copies, state.base));
  const std::string files = names_of(state.data.copy_files);
  const std::string source = fmt::format("fitted: {} copies of {}", fit.errors.size(), files);
  state.gpu.copy_fraction = fit.copy_fraction;
  note_value(state, "memory.copy_fraction", fit.copy_fraction, state.base.copy_fraction, source);
  if (fit.launch) {
    state.gpu.launch = *fit.launch;
    note_value(state, "compute.launch_ns", static_cast<double>(fit.launch->value),
               static_cast<double>(state.base.launch.value), source);
  }
  note_errors(state, "copy", "from 128 MiB moved", fit.errors, Evaluation::fit, files);
  if (!fit.left_out.empty())
    note_errors(state, "copy", "from 128 MiB moved", fit.left_out, Evaluation::leave_one_out,
                files);
  return {};
}

/// Values that no measurement determined keep the base's value; their source states that.
void take_over_sources(CalibrationState& state) {
  for (auto& [key, source] : state.gpu.sources)
    source = fmt::format("taken over from {}: {}", state.base.name, source);
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
    if (std::ranges::find(state.gpu.sources, key, [](const auto& entry) { return entry.first; }) ==
        state.gpu.sources.end())
      set_source(state.gpu, key, "taken over from " + state.base.name);
  const TableFiles& tables = state.gpu.tables;
  for (const auto& [key, file] : {std::pair{"tables.gemm_fp8", &tables.gemm_fp8},
                                  {"tables.gemm_fp8_blocks", &tables.gemm_fp8_blocks},
                                  {"tables.attention_warpgroups", &tables.attention_warpgroups},
                                  {"tables.attention_masked", &tables.attention_masked},
                                  {"tables.grouped_warpgroups", &tables.grouped_warpgroups}})
    if (!file->empty()) set_source(state.gpu, key, "taken over from " + state.base.name);
}

/// The path as the new file will refer to it: a catalogue name, or the table's location.
fs::path taken_over(const fs::path& table, const fs::path& gpus_dir) {
  if (table.empty()) return {};
  const fs::path inside = table.lexically_relative(gpus_dir);
  const bool below = !inside.empty() && *inside.begin() != "..";
  return below ? inside : fs::absolute(table);
}

bool has_other_gemms(const CalibrationState& state) {
  return state.gpu.tables.gemm.filename() != state.base.tables.gemm.filename() ||
         state.gpu.gemm_scale != state.base.gemm_scale;
}

/// The base's table of mfsdp-exec's own kernels is relative to the base's GEMMs.
void keep_grouped_if_gemms_stay(CalibrationState& state) {
  if (!has_other_gemms(state)) return;
  leave_out(state, state.gpu.tables.grouped_warpgroups, state.tables.grouped_warpgroups,
            "tables.grouped_warpgroups");
}

/// Keeps published tables that no measurement replaces.
void keep_published(CalibrationState& state) {
  Gpu& gpu = state.gpu;
  if (!gpu.published) return;
  const bool products = has_other_gemms(state);
  const bool attention =
      gpu.tables.attention.filename() != state.base.tables.attention.filename() ||
      gpu.attention_scale != state.base.attention_scale;
  if (products) {
    gpu.published->gemm.clear();
    gpu.published->grouped.clear();  // relative to the GEMMs of the same source
  }
  if (attention) gpu.published->attention.clear();
  if (!gpu.published->gemm.empty() || !gpu.published->attention.empty()) return;
  gpu.published.reset();
  gpu.default_tables.reset();
  std::erase_if(gpu.sources, [](const auto& source) { return source.first == "tables.default"; });
}

void note_device(CalibrationState& state) {
  for (const std::string& device : state.data.devices) {
    std::string chip = state.base.name.substr(0, state.base.name.find('_'));
    for (char& c : chip) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (device.find(chip) == std::string::npos)
      state.result.notes.push_back(
          fmt::format("the files were measured on \"{}\", values not measured are {}'s (--gpu)",
                      printable(device), state.base.name));
  }
}

Result<Calibration> calibrate_checked(const CalibrationRequest& request) {
  MFSDP_LET(data, read_measurements(request.files));
  MFSDP_LET(base, load_gpu(request.gpu, request.gpus_dir));
  MFSDP_LET(tables, load_cost_tables(base.tables));
  CalibrationState state{.request = request,
                         .data = std::move(data),
                         .base = base,
                         .gpu = base,
                         .tables = std::move(tables)};
  state.gpu.tables = {
      .gemm = taken_over(base.tables.gemm, request.gpus_dir),
      .gemm_fp8 = taken_over(base.tables.gemm_fp8, request.gpus_dir),
      .gemm_fp8_blocks = taken_over(base.tables.gemm_fp8_blocks, request.gpus_dir),
      .attention = taken_over(base.tables.attention, request.gpus_dir),
      .attention_warpgroups = taken_over(base.tables.attention_warpgroups, request.gpus_dir),
      .attention_masked = taken_over(base.tables.attention_masked, request.gpus_dir),
      .collective = taken_over(base.tables.collective, request.gpus_dir),
      .network = taken_over(base.tables.network, request.gpus_dir),
      .grouped_warpgroups = taken_over(base.tables.grouped_warpgroups, request.gpus_dir)};
  if (state.gpu.published)
    for (fs::path* table : {&state.gpu.published->gemm, &state.gpu.published->attention,
                            &state.gpu.published->grouped})
      *table = taken_over(*table, request.gpus_dir);
  take_over_sources(state);
  note_device(state);
  MFSDP_TRY(check_possible(state));
  MFSDP_TRY(add_gemm(state));
  MFSDP_TRY(add_attention(state));
  MFSDP_TRY(add_copies(state));
  MFSDP_TRY(add_collectives(state));
  MFSDP_TRY(add_traces(state));
  MFSDP_TRY(check_prices(state));
  keep_grouped_if_gemms_stay(state);
  keep_published(state);
  state.gpu.calibration =
      state.gpu.measured == MeasuredParts{true, true, true} ? "measured" : "datasheet";
  const std::string toml = gpu_toml(state.gpu);
  auto read_back = parse_gpu(toml, request.output.string());
  if (!read_back)
    return fail("--calibrate", "the GPU file would be invalid: " + read_back.error().message());
  state.result.files.push_back({request.output, toml});
  state.result.gpu = std::move(*read_back);
  state.result.gpu.name = request.output.stem().string();
  return std::move(state.result);
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
