#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/engine.hpp"
#include "reports/compare/compare.hpp"
#include "reports/render/output.hpp"

namespace mfsdp {
namespace {

using CompareJson = nlohmann::ordered_json;

constexpr std::size_t kPage = 100;  // columns of the text
constexpr std::size_t kWidestName = 40;
constexpr std::size_t kWidestTitle = 24;    // longer ones stand on a line of their own
constexpr std::size_t kNarrowestText = 20;  // texts are not cut below that
constexpr std::size_t kGapOfColumns = 2;
constexpr double kManifold = 10;  // from there on "12.5 x" rather than "+1,150 %"

bool is_shown(const ComparedSection& section, const ComparedRow& row, bool differences_only) {
  return !differences_only || !section.columns.empty() || row.differs();
}

std::string title_of(const ComparedRun& run, std::size_t index) {
  return fmt::format("{}: {} [{}]", index + 1, printable(run.label), run.kind);
}

std::vector<std::string> titles_of(const Comparison& comparison, const ComparedSection& section) {
  if (!section.columns.empty()) return section.columns;
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < comparison.runs.size(); ++i)
    titles.push_back(title_of(comparison.runs[i], i));
  return titles;
}

/// The cell, and how far it is from the first run's.
std::string shown_cell(const ComparedSection& section, const ComparedRow& row, std::size_t index) {
  const ComparedCell& cell = row.cells[index];
  const ComparedCell& first = row.cells.front();
  if (row.name == kEngineRow) return std::string(shown_engine(cell.text));
  if (!section.relative || index == 0 || !cell.figure || !first.figure) return cell.text;
  if (*cell.figure == *first.figure) return cell.text + " (=)";
  const std::string part = relative_text(*first.figure, *cell.figure);
  const std::string difference = part.empty() || part.find('<') != std::string::npos
                                     ? difference_text(row.unit, *first.figure, *cell.figure)
                                     : part;
  const double ratio = real_of(*cell.figure) / real_of(*first.figure);
  if (std::isfinite(ratio) && ratio >= kManifold)
    return fmt::format("{} ({} x)", cell.text, format_rate(ratio));
  return fmt::format("{} ({})", cell.text, difference);
}

std::string cut_cell(const std::string& text, std::size_t most) {
  return most > 0 ? cut_to_width(printable(text), most) : text;
}

/// The columns [begin, end) of the section, with the names of its rows. Cells are cut to `most`
/// columns; 0: they stay whole.
Table table_of(const ComparedSection& section, const std::vector<std::string>& titles,
               std::size_t begin, std::size_t end, bool differences_only, std::size_t most) {
  Table table;
  table.columns.push_back({section.title.size() > kWidestTitle ? "" : section.title});
  for (std::size_t i = begin; i < end; ++i)
    table.columns.push_back({cut_cell(titles[i], most), Align::right});
  for (const ComparedRow& row : section.rows) {
    if (!is_shown(section, row, differences_only)) continue;
    if (table.rows.size() == section.most_shown) break;
    std::vector<std::string> cells{cut_cell(row.name, most > 0 ? kWidestName : 0)};
    for (std::size_t i = begin; i < end; ++i)
      cells.push_back(cut_cell(shown_cell(section, row, i), most));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

/// "and 7 more"; nothing where all rows are shown.
std::string rest_text(const ComparedSection& section, const Table& table, bool differences_only) {
  const auto rows = std::ranges::count_if(section.rows, [&](const ComparedRow& row) {
    return is_shown(section, row, differences_only);
  });
  const std::size_t rest = static_cast<std::size_t>(rows) - table.rows.size();
  return rest == 0 ? "" : fmt::format("and {} more, which JSON and CSV list", rest);
}

std::size_t width_of_column(const Table& table, std::size_t column) {
  std::size_t width = display_width(table.columns[column].title);
  for (const auto& row : table.rows) width = std::max(width, display_width(row[column]));
  return width;
}

/// How many columns from `begin` on fit beside the names; at least one.
std::size_t fitting(const Table& all, std::size_t begin, std::size_t width) {
  std::size_t used = width_of_column(all, 0);
  std::size_t end = begin;
  while (end + 1 < all.columns.size()) {
    used += kGapOfColumns + width_of_column(all, end + 1);
    if (used > width && end > begin) break;
    ++end;
  }
  return end;
}

std::string section_text(const Comparison& comparison, const ComparedSection& section,
                         bool differences_only, const TextStyle& style) {
  const std::vector<std::string> titles = titles_of(comparison, section);
  const std::size_t width = style.width.value_or(kPage);
  std::size_t names = std::min(section.title.size(), kWidestTitle);
  for (const ComparedRow& row : section.rows)
    names = std::max(names, std::min(display_width(row.name), kWidestName));
  const std::size_t share = (width - std::min(width, names)) / titles.size();
  const std::size_t most = std::max(kNarrowestText, share - std::min(share, kGapOfColumns));
  const Table all = table_of(section, titles, 0, titles.size(), differences_only, most);
  std::string text;
  if (section.title.size() > kWidestTitle || all.rows.empty())
    text +=
        section.title + (section.rows.empty() || !all.rows.empty() ? "\n" : ": no differences\n");
  for (std::size_t begin = 0; !all.rows.empty() && begin < titles.size();) {
    const std::size_t end = fitting(all, begin, width);
    text += (begin == 0 ? "" : "\n") +
            render_table(table_of(section, titles, begin, end, differences_only, most), style);
    begin = end;
  }
  TextStyle page = style;
  page.width = width;
  if (const std::string rest = rest_text(section, all, differences_only); !rest.empty())
    text += "  " + rest + "\n";
  for (const std::string& note : section.notes)
    text += wrap_text("  " + printable(note) + "\n", page);
  return text;
}

std::string comparison_text(const Comparison& comparison, bool differences_only,
                            const TextStyle& style) {
  std::string text;
  for (const std::string& note : comparison.notes) text += "note: " + note + "\n";
  for (const ComparedSection& section : comparison.sections)
    text += (text.empty() ? "" : "\n") + section_text(comparison, section, differences_only, style);
  return text;
}

std::string comparison_markdown(const Comparison& comparison, bool differences_only) {
  std::string text;
  for (const std::string& note : comparison.notes) text += "> " + markdown_text(note) + "\n\n";
  for (const ComparedSection& section : comparison.sections) {
    const std::vector<std::string> titles = titles_of(comparison, section);
    text += fmt::format("### {}\n\n", markdown_text(section.title));
    const Table table = table_of(section, titles, 0, titles.size(), differences_only, 0);
    if (!table.rows.empty()) text += render_markdown_table(table) + "\n";
    if (const std::string rest = rest_text(section, table, differences_only); !rest.empty())
      text += "- " + rest + "\n";
    for (const std::string& note : section.notes) text += "- " + markdown_text(note) + "\n";
    if (!section.notes.empty()) text += "\n";
  }
  return text;
}

CompareJson cell_json(const ComparedCell& cell) {
  if (cell.figure) return std::visit([](auto value) { return CompareJson(value); }, *cell.figure);
  return cell.text == "-" ? CompareJson(nullptr) : CompareJson(cell.text);
}

CompareJson section_json(const ComparedSection& section, bool differences_only) {
  CompareJson rows = CompareJson::array();
  for (const ComparedRow& row : section.rows) {
    if (!is_shown(section, row, differences_only)) continue;
    CompareJson cells = CompareJson::array();
    for (const ComparedCell& cell : row.cells) cells.push_back(cell_json(cell));
    rows.push_back({{"name", row.name}, {"differs", row.differs()}, {"values", std::move(cells)}});
  }
  CompareJson json = {{"title", section.title}, {"rows", std::move(rows)}};
  if (!section.columns.empty()) json["columns"] = section.columns;
  if (!section.notes.empty()) json["notes"] = section.notes;
  return json;
}

std::string comparison_json(const Comparison& comparison, bool differences_only, bool one_line) {
  CompareJson runs = CompareJson::array();
  for (const ComparedRun& run : comparison.runs)
    runs.push_back({{"run_id", run.run_id}, {"name", run.name}, {"source", run.kind}});
  CompareJson sections = CompareJson::array();
  for (const ComparedSection& section : comparison.sections)
    sections.push_back(section_json(section, differences_only));
  const CompareJson json = {{"schema", "mfsdp.compare/1"},
                            {"runs", std::move(runs)},
                            {"notes", comparison.notes},
                            {"sections", std::move(sections)}};
  return json.dump(one_line ? -1 : 2, ' ', false, CompareJson::error_handler_t::replace) + "\n";
}

/// One line a row; figures without separators and units, so that they are numbers in a spreadsheet.
std::string comparison_csv(const Comparison& comparison, bool differences_only) {
  std::size_t most = comparison.runs.size();
  for (const ComparedSection& section : comparison.sections)
    most = std::max(most, section.columns.size());
  std::string text = "section,name";
  for (std::size_t i = 0; i < most; ++i)
    text += "," + (i < comparison.runs.size() ? csv_field(title_of(comparison.runs[i], i))
                                              : fmt::format("column {}", i + 1));
  text += "\n";
  for (const ComparedSection& section : comparison.sections) {
    const auto line = [&](const std::string& name, auto cell_of, std::size_t count) {
      text += csv_field(section.title) + "," + csv_field(name);
      for (std::size_t i = 0; i < most; ++i) text += "," + (i < count ? cell_of(i) : std::string());
      text += "\n";
    };
    if (!section.columns.empty())
      line(
          "", [&](std::size_t i) { return csv_field(section.columns[i]); }, section.columns.size());
    for (const ComparedRow& row : section.rows) {
      if (!is_shown(section, row, differences_only)) continue;
      line(
          row.name,
          [&](std::size_t i) {
            const ComparedCell& cell = row.cells[i];
            return cell.figure ? exact_text(*cell.figure)
                               : csv_field(cell.text == "-" ? "" : cell.text);
          },
          row.cells.size());
    }
  }
  return text;
}

}  // namespace

std::string render_comparison(const Comparison& comparison, OutputFormat format,
                              bool differences_only, const TextStyle& style) {
  switch (format) {
    case OutputFormat::text: return comparison_text(comparison, differences_only, style);
    case OutputFormat::md: return comparison_markdown(comparison, differences_only);
    case OutputFormat::json: return comparison_json(comparison, differences_only, false);
    case OutputFormat::jsonl: return comparison_json(comparison, differences_only, true);
    case OutputFormat::csv: break;
  }
  return comparison_csv(comparison, differences_only);
}

}  // namespace mfsdp
