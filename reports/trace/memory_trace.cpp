#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "core/base/json_text.hpp"
#include "reports/trace/chrome_trace.hpp"
#include "reports/trace/output_file.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kCategories = Names<Category>::values.size();
constexpr std::size_t kColumns = kCategories + 2;  ///< time_ns, the categories, total

std::array<std::string_view, kColumns> column_names() {
  std::array<std::string_view, kColumns> names{"time_ns"};
  std::ranges::copy(Names<Category>::values, names.begin() + 1);
  names.back() = "total";
  return names;
}

std::array<std::int64_t, kColumns> row_of(const MemoryPoint& point) {
  std::array<std::int64_t, kColumns> row{point.at.value};
  Bytes total;
  for (std::size_t i = 0; i < kCategories; ++i) {
    row.at(i + 1) = point.categories.at(i).value;
    total += point.categories.at(i);
  }
  row.back() = total.value;
  return row;
}

void write_csv(OutputFile& file, const PredictedRun& result) {
  file.write(fmt::format("{}\n", fmt::join(column_names(), ",")));
  for (const MemoryPoint& point : result.memory_timeline)
    file.write(fmt::format("{}\n", fmt::join(row_of(point), ",")));
}

void write_json(OutputFile& file, const PredictedRun& result) {
  const std::string run = json_literal(result.run_id);
  file.write(fmt::format("{{\"schema\":\"mfsdp.memory/1\",\"run_id\":{},\"columns\":[\"{}\"],\n",
                         run, fmt::join(column_names(), "\",\"")));
  file.write("\"rows\":[");
  std::string_view separator = "\n";
  for (const MemoryPoint& point : result.memory_timeline) {
    file.write(fmt::format("{}[{}]", separator, fmt::join(row_of(point), ",")));
    separator = ",\n";
  }
  file.write("\n]}\n");
}

bool is_csv(std::filesystem::path path) {
  if (path.extension() == ".gz") path = path.stem();
  return path.extension() == ".csv";
}

}  // namespace

Result<void> write_memory_trace(const PredictedRun& result, const std::filesystem::path& path) {
  MFSDP_LET(file, OutputFile::create(path));
  if (is_csv(path))
    write_csv(file, result);
  else
    write_json(file, result);
  return file.commit();
}

}  // namespace mfsdp
