#include "sim/predict/routing_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "sim/cost/csv.hpp"

namespace mfsdp {
namespace {

using RoutingJson = nlohmann::json;

constexpr std::int64_t kMostTokens = 1'000'000'000'000;
constexpr std::size_t kMostRoutingBytes = std::size_t{64} << 20;

Result<std::vector<std::int64_t>> read_list(const RoutingJson& list, const std::string& where) {
  std::vector<std::int64_t> counts;
  for (const RoutingJson& count : list) {
    const bool whole = count.is_number_integer() &&
                       (!count.is_number_unsigned() ||
                        count.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMostTokens));
    if (!whole || count.get<std::int64_t>() < 0)
      return fail(fmt::format("{}[{}]", where, counts.size()),
                  fmt::format("expected tokens of an expert, an integer from 0 to 1e12, got {}",
                              count.dump().substr(0, 40)));
    counts.push_back(count.get<std::int64_t>());
  }
  return counts;
}

/// A list of counts, or a list of such lists; or an object with "counts" as its only key.
Result<Routing> read_json(std::string_view text, const std::string& where) {
  MFSDP_LET(json, parse_json(text, where));
  const RoutingJson* lists = &json;
  std::string place = where;
  if (json.is_object()) {
    if (json.size() != 1 || !json.contains("counts"))
      return fail(where, "expected \"counts\" as the only key");
    lists = &json["counts"];
    place += ".counts";
  }
  if (!lists->is_array() || lists->empty())
    return fail(place, "expected a list of tokens by expert, or one such list for each block");
  Routing routing{.text = where, .zipf = {}, .counts = {}, .blocks = {}};
  if (!lists->front().is_array()) {
    MFSDP_LET(counts, read_list(*lists, place));
    routing.counts.push_back(std::move(counts));
    return routing;
  }
  for (const RoutingJson& list : *lists) {
    const std::string of_block = fmt::format("{}[{}]", place, routing.counts.size());
    if (!list.is_array()) return fail(of_block, "expected a list, as the first entry is one");
    MFSDP_LET(counts, read_list(list, of_block));
    routing.counts.push_back(std::move(counts));
  }
  return routing;
}

Result<std::int64_t> whole_cell(const CsvTable& table, std::size_t row, const char* name) {
  MFSDP_LET(column, table.column(name));
  const std::string& text = table.cell(row, column);
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMostTokens)
    return fail(table.place(row),
                fmt::format("column {} has \"{}\"; expected an integer from 0 to 1e12", name,
                            text.substr(0, 40)));
  return value;
}

/// Columns expert and tokens, and block if blocks differ; rows in any order.
Result<Routing> read_csv(std::string_view text, const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  const bool by_block = table.has_column("block");
  std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> blocks;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    std::int64_t block = 0;
    if (by_block) {
      MFSDP_LET(stated, whole_cell(table, row, "block"));
      block = stated;
    }
    MFSDP_LET(expert, whole_cell(table, row, "expert"));
    MFSDP_LET(tokens, whole_cell(table, row, "tokens"));
    if (!blocks[block].try_emplace(expert, tokens).second)
      return fail(table.place(row), fmt::format("expert {} occurs twice", expert));
  }
  Routing routing{.text = where, .zipf = {}, .counts = {}, .blocks = {}};
  for (const auto& [block, experts] : blocks) {
    std::vector<std::int64_t>& counts = routing.counts.emplace_back();
    if (by_block) routing.blocks.push_back(block);
    for (const auto& [expert, tokens] : experts) {
      if (expert != std::ssize(counts))
        return fail(where,
                    fmt::format("{}has no tokens of expert {}; expected one row for each",
                                by_block ? fmt::format("block {} ", block) : "", counts.size()));
      counts.push_back(tokens);
    }
  }
  return routing;
}

}  // namespace

Result<Routing> read_routing(std::string_view text, const std::string& where) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool is_json =
      first != std::string_view::npos && (text[first] == '[' || text[first] == '{');
  return is_json ? read_json(text, where) : read_csv(text, where);
}

Result<Routing> load_routing(const std::string& path) {
  MFSDP_LET(text, read_file(path, "tokens by expert, as JSON or CSV", kMostRoutingBytes));
  return read_routing(text, path);
}

}  // namespace mfsdp
