// Recorded results: CSV files of configurations, written out in full, beside what the tools
// computed for each. A test computes them again, so that a change of code that should change no
// figure can be held against it.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/hf_config.hpp"
#include "core/plan/config.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp::test {

inline const std::filesystem::path kRecorded =
    std::filesystem::path(MFSDP_SOURCE_DIR) / "tests" / "integration" / "recorded";

/// Column and value, in the order of the file.
using Cells = std::vector<std::pair<std::string, std::string>>;

/// MFSDP_UPDATE_RECORDED=1: results are computed and written instead of compared. A file that is
/// not there gets new configurations (recorded_draw.hpp).
[[nodiscard]] inline bool updates_recorded() {
  const char* asked = std::getenv("MFSDP_UPDATE_RECORDED");
  return asked != nullptr && std::string_view(asked) == "1";
}

/// FNV-1a of 64 bits, as 16 hexadecimal digits. Numbers are added byte by byte, lowest first.
class Digest {
 public:
  void add_byte(std::uint64_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3U; }
  template <class Number>
  void add(Number number) {
    for (std::size_t i = 0; i < sizeof(Number); ++i)
      add_byte((static_cast<std::uint64_t>(number) >> (8 * i)) & 0xffU);
  }
  void add_text(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0xffU);  // no text holds it
  }
  [[nodiscard]] std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

/// Lines of a CSV file whose first line names the columns. Throws where a line has other columns.
inline std::vector<Cells> read_cells(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = split(line, ',');
  std::vector<Cells> lines;
  while (std::getline(in, line)) {
    const std::vector<std::string> values = split(line, ',');
    if (values.size() != names.size())
      throw std::runtime_error(fmt::format("{}:{}: expected {} columns, got {}", path.string(),
                                           lines.size() + 2, names.size(), values.size()));
    Cells& cells = lines.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) cells.emplace_back(names[i], values[i]);
  }
  return lines;
}

inline void write_cells(const std::filesystem::path& path, const std::vector<Cells>& lines) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::trunc);
  const auto put = [&](const Cells& cells, bool names) {
    std::string_view separator;
    for (const auto& [name, value] : cells) {
      out << std::exchange(separator, ",") << (names ? name : value);
    }
    out << '\n';
  };
  if (!lines.empty()) put(lines.front(), true);
  for (const Cells& cells : lines) put(cells, false);
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

/// The value of a column; throws where there is none.
inline const std::string& cell(const Cells& cells, std::string_view name) {
  for (const auto& [column, value] : cells)
    if (column == name) return value;
  throw std::runtime_error(fmt::format("no column {}", name));
}

inline std::int64_t number(const Cells& cells, std::string_view name) {
  const std::string& text = cell(cells, name);
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || std::from_chars(text.data(), end, value).ptr != end)
    throw std::runtime_error(fmt::format("column {}: '{}' is no number", name, text));
  return value;
}

template <class Enum>
Enum named(const Cells& cells, std::string_view name) {
  return parse<Enum>(cell(cells, name)).value();
}

// --- Models -----------------------------------------------------------------------------------

/// Shape of a model of recorded/models.csv.
inline ModelShape shape_of_cells(const Cells& cells) {
  ModelShape shape;
  shape.layers = number(cells, "layers");
  shape.hidden = number(cells, "hidden");
  shape.heads = number(cells, "heads");
  shape.kv_heads = number(cells, "kv_heads");
  shape.head_dim = number(cells, "head_dim");
  shape.intermediate = number(cells, "intermediate");
  shape.vocab = number(cells, "vocab");
  shape.max_seq_len = number(cells, "max_seq_len");
  shape.tied_embeddings = number(cells, "tied") != 0;
  shape.qkv_bias = number(cells, "qkv_bias") != 0;
  shape.qk_norm = number(cells, "qk_norm") != 0;
  return shape;
}

/// By name, those of models.csv and the built-in ones.
class RecordedModels {
 public:
  RecordedModels() {
    for (const Cells& cells : read_cells(kRecorded / "models.csv"))
      shapes_[cell(cells, "model")] = shape_of_cells(cells);
  }

  const ModelShape& operator[](const std::string& name) {
    const auto found = shapes_.find(name);
    if (found != shapes_.end()) return found->second;
    return shapes_[name] = load_model(name, kModels).value().shape;
  }

 private:
  std::map<std::string, ModelShape> shapes_;
};

// --- Configurations ---------------------------------------------------------------------------

/// Every field of a configuration; the model by name.
inline Cells cells_of(const std::string& model, const PlanConfig& c) {
  const auto name = [](auto value) { return std::string(to_string(value)); };
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {{"model", model},
          {"dp_outer", text(c.mesh.size(Axis::dp_outer))},
          {"dp_shard", text(c.mesh.size(Axis::dp_shard))},
          {"strategy", name(c.strategy)},
          {"outer", name(c.outer_strategy)},
          {"seq", text(c.seq_len)},
          {"batch", text(c.micro_batch)},
          {"microbatches", text(c.microbatches)},
          {"recompute", name(c.recompute.kind)},
          {"blocks", text(c.recompute.full_blocks)},
          {"param", name(c.param_dtype)},
          {"main", name(c.main_dtype)},
          {"grad", name(c.grad_dtype)},
          {"reduce", name(c.reduce_dtype)},
          {"prefetch", text(c.prefetch)},
          {"grad_slots", text(c.grad_slots)},
          {"allocator", name(c.allocator)},
          {"optimizer", name(c.optimizer)},
          {"clip", text(c.clip.num)},
          {"deterministic", text(c.deterministic ? 1 : 0)},
          {"exact", text(c.exact_sums ? 1 : 0)},
          {"frozen", fmt::format("{}", fmt::join(c.frozen, "+"))},
          {"chunk", text(c.logits_chunk)}};
}

inline PlanConfig config_of(const Cells& cells, RecordedModels& models) {
  PlanConfig c;
  c.model = models[cell(cells, "model")];
  c.mesh = data_parallel_mesh(number(cells, "dp_outer"), number(cells, "dp_shard"));
  c.strategy = named<Strategy>(cells, "strategy");
  c.outer_strategy = named<Strategy>(cells, "outer");
  c.seq_len = number(cells, "seq");
  c.micro_batch = number(cells, "batch");
  c.microbatches = number(cells, "microbatches");
  c.recompute = {.kind = named<Recompute>(cells, "recompute"),
                 .full_blocks = number(cells, "blocks")};
  c.param_dtype = named<DType>(cells, "param");
  c.main_dtype = named<DType>(cells, "main");
  c.grad_dtype = named<DType>(cells, "grad");
  c.reduce_dtype = named<DType>(cells, "reduce");
  c.prefetch = number(cells, "prefetch");
  c.grad_slots = number(cells, "grad_slots");
  c.allocator = named<AllocatorPolicy>(cells, "allocator");
  c.optimizer = named<Optimizer>(cells, "optimizer");
  c.clip = {number(cells, "clip"), 1};
  c.deterministic = number(cells, "deterministic") != 0;
  c.exact_sums = number(cells, "exact") != 0;
  if (!cell(cells, "frozen").empty()) c.frozen = split(cell(cells, "frozen"), '+');
  c.logits_chunk = number(cells, "chunk");
  c.layout = LayoutRule::megatron_fsdp;  // the one there was when the lines were written
  return c;
}

/// The first columns of a line: its configuration.
inline Cells configuration_cells(const Cells& cells) {
  Cells own = cells;
  own.resize(cells_of("", {}).size());
  return own;
}

/// The first recorded column that computed results differ from, with both values; nothing where
/// all are equal.
inline std::string first_difference(const Cells& recorded, const Cells& computed) {
  for (const auto& [name, value] : computed)
    if (const std::string& before = cell(recorded, name); before != value)
      return fmt::format("{}: recorded {}, now {}", name, before, value);
  return "";
}

}  // namespace mfsdp::test
