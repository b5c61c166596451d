#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <utility>

#include "reports/compare/cells.hpp"
#include "reports/compare/compare.hpp"

namespace mfsdp {
namespace {

using Runs = std::span<const RunResult>;
using Programs = std::vector<std::shared_ptr<const Program>>;  ///< one a run; null: not known

constexpr std::size_t kMostBufferRows = 20;

struct BufferKey {
  Category category = Category::activation;
  std::string name;

  friend auto operator<=>(const BufferKey&, const BufferKey&) = default;
};

/// Bytes in each run; none where the run's plan has no such buffer, or is not known.
using BufferBytes = std::vector<std::optional<std::int64_t>>;

/// Buffers of one category and of names that differ in their numbers alone, which are as large as
/// each other in every run.
struct BufferFamily {
  BufferKey key;  ///< numbers of the name are "*" where there are several
  BufferBytes bytes;
  std::int64_t count = 0;
};

/// "layers.12.norm" -> "layers.*.norm".
std::string starred(const std::string& name) {
  std::string text;
  bool in_number = false;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool starts = digit && !in_number && (text.empty() || text.back() == '.');
    if (starts)
      text += '*';
    else if (!digit || !in_number)
      text += c;
    in_number = starts || (digit && in_number);
  }
  return text;
}

std::map<BufferKey, BufferBytes> buffers_of(const Programs& programs) {
  std::map<BufferKey, BufferBytes> buffers;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (programs[i] == nullptr) continue;
    for (const Buffer& buffer : programs[i]->buffers) {
      BufferBytes& bytes = buffers[{buffer.category, buffer.name}];
      bytes.resize(programs.size());
      bytes[i] =
          checked_add(bytes[i].value_or(0), (buffer.size * buffer.instances.value_or(1)).value);
    }
  }
  return buffers;
}

bool is_different(const BufferBytes& bytes, const Programs& programs) {
  for (std::size_t i = 1; i < bytes.size(); ++i)
    if (programs[i] != nullptr && bytes[i] != bytes[0]) return true;
  return false;
}

/// The largest difference from the first run.
std::int64_t weight_of(const BufferFamily& family, const Programs& programs) {
  std::int64_t weight = 0;
  for (std::size_t i = 1; i < programs.size(); ++i)
    if (programs[i] != nullptr)
      weight =
          std::max(weight, std::abs(family.bytes[i].value_or(0) - family.bytes[0].value_or(0)));
  return weight;
}

/// Those that differ, those with the largest difference first.
std::vector<BufferFamily> families_of(const std::map<BufferKey, BufferBytes>& buffers,
                                      const Programs& programs) {
  std::map<std::pair<BufferKey, BufferBytes>, BufferFamily> families;
  for (const auto& [key, bytes] : buffers) {
    if (!is_different(bytes, programs)) continue;
    const BufferKey common{key.category, starred(key.name)};
    BufferFamily& family = families[{common, bytes}];
    family.key = family.count == 0 ? key : common;
    family.bytes.resize(bytes.size());
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i]) family.bytes[i] = checked_add(family.bytes[i].value_or(0), *bytes[i]);
    ++family.count;
  }
  std::vector<BufferFamily> list;
  for (auto& [key, family] : families) list.push_back(std::move(family));
  std::ranges::stable_sort(list, std::ranges::greater(),
                           [&](const BufferFamily& family) { return weight_of(family, programs); });
  return list;
}

ComparedRow family_row(const BufferFamily& family) {
  const std::string times = family.count > 1 ? fmt::format("{} x ", family.count) : "";
  ComparedRow row{
      .name = fmt::format("{} {}{}", to_string(family.key.category), times, family.key.name),
      .unit = MeasureUnit::bytes};
  for (const auto& bytes : family.bytes)
    row.cells.push_back(
        figure_cell(MeasureUnit::bytes, bytes ? std::optional<Figure>(*bytes) : std::nullopt));
  return row;
}

/// "run 2: 3 buffers appeared (+1.00 GiB), 1 grew (+2.00 MiB)".
std::string changes_text(const std::map<BufferKey, BufferBytes>& buffers, std::size_t run) {
  struct Change {
    std::string_view what;
    std::int64_t count = 0;
    std::int64_t bytes = 0;
  };
  Change appeared{.what = "appeared"};
  Change vanished{.what = "vanished"};
  Change grew{.what = "grew"};
  Change shrank{.what = "shrank"};
  for (const auto& [key, bytes] : buffers) {
    const auto& before = bytes[0];
    const auto& after = bytes[run];
    if (before == after) continue;
    Change& change = !before ? appeared : !after ? vanished : *before < *after ? grew : shrank;
    ++change.count;
    change.bytes = checked_add(change.bytes, after.value_or(0) - before.value_or(0));
  }
  std::string text;
  for (const Change& change : {appeared, vanished, grew, shrank})
    if (change.count > 0)
      text += fmt::format("{}{}{} {} ({}{})", text.empty() ? "" : ", ", change.count,
                          text.empty() ? " buffers" : "", change.what, change.bytes < 0 ? "-" : "+",
                          human_text(MeasureUnit::bytes, std::abs(change.bytes)));
  return fmt::format("run {}: {}", run + 1, text.empty() ? "the same buffers" : text);
}

/// Plans are built only where there are several.
Programs programs_of(Runs runs, const ProgramOf& program) {
  Programs programs(runs.size());
  const bool one_plan = std::ranges::all_of(runs, [&](const RunResult& run) {
    return !run.plan_hash.empty() && run.plan_hash == runs[0].plan_hash;
  });
  if (one_plan || !program) return programs;
  std::ranges::transform(runs, programs.begin(), program);
  return programs;
}

}  // namespace

ComparedSection compare_buffers(Runs runs, const ProgramOf& program) {
  ComparedSection section{.title = "Buffers", .notes = {}, .rows = {}, .relative = true};
  section.most_shown = kMostBufferRows;
  const Programs programs = programs_of(runs, program);
  const auto buffers = buffers_of(programs);
  if (programs[0] != nullptr)
    for (const BufferFamily& family : families_of(buffers, programs))
      section.rows.push_back(family_row(family));
  for (std::size_t i = 1; i < runs.size(); ++i) {
    if (!runs[i].plan_hash.empty() && runs[i].plan_hash == runs[0].plan_hash)
      section.notes.push_back(fmt::format("run {}: the same buffers", i + 1));
    else if (programs[0] != nullptr && programs[i] != nullptr)
      section.notes.push_back(changes_text(buffers, i));
    else
      section.notes.push_back(
          fmt::format("run {}: not known, as the plan of run {} cannot be built again from what is "
                      "stored",
                      i + 1, programs[0] == nullptr ? 1 : i + 1));
  }
  return section;
}

}  // namespace mfsdp
