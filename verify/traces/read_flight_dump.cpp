#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "core/formats/json_values.hpp"
#include "core/formats/read_pickle.hpp"
#include "verify/traces/flight_recorder.hpp"

namespace mfsdp::traces {
namespace {

/// The sides of a call that must be equal on all ranks.
struct Kind {
  std::string_view name;
  bool input;
  bool output;
};
/// For lists the sizes of the tensors may differ, but not their sum. For calls that are not in this
/// table only the type is compared.
constexpr std::array kKinds{
    Kind{"all_reduce", true, true},
    Kind{"allreduce_coalesced", true, true},
    Kind{"broadcast", true, true},
    Kind{"_all_gather_base", true, true},
    Kind{"all_gather_into_tensor_coalesced", true, true},
    Kind{"_reduce_scatter_base", true, true},
    Kind{"reduce_scatter_tensor_coalesced", true, true},
    Kind{"all_gather", false, true},
    Kind{"reduce_scatter", true, false},
    Kind{"reduce", true, false},
    Kind{"gather", true, false},
    Kind{"scatter", false, true},
    Kind{"transfer", true, false},
};

struct Entry {
  const PickleValue* value;
  std::string where;

  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view field,
                                            std::string_view expected) const {
    return fail(where, fmt::format("{}: expected {}", field, expected));
  }
  [[nodiscard]] Result<std::int64_t> number(std::string_view field) const {
    const PickleValue* found = value->find(field);
    if (found == nullptr || found->integer() == nullptr) return wrong(field, "an integer");
    return *found->integer();
  }
  [[nodiscard]] Result<std::string> text(std::string_view field) const {
    const PickleValue* found = value->find(field);
    if (found == nullptr || found->text() == nullptr) return wrong(field, "a text");
    return *found->text();
  }
  /// False if it is missing.
  [[nodiscard]] bool flag(std::string_view field) const {
    const PickleValue* found = value->find(field);
    const bool* is = found == nullptr ? nullptr : std::get_if<bool>(&found->value);
    return is != nullptr && *is;
  }
};

/// Elements of all tensors; none if sizes are missing, or too large to be true.
Result<std::optional<std::int64_t>> elements_of(const Entry& entry, std::string_view field) {
  const PickleValue* sizes = entry.value->find(field);
  if (sizes == nullptr) return std::nullopt;
  const auto wrong = [&] { return entry.wrong(field, "a list with the sizes of each tensor"); };
  if (sizes->list() == nullptr) return wrong();
  std::optional<std::int64_t> sum;
  bool too_large = false;
  for (const PickleRef tensor : sizes->list()->items) {
    if (tensor->list() == nullptr) return wrong();
    std::int64_t product = 1;
    for (const PickleRef dim : tensor->list()->items) {
      if (dim->integer() == nullptr || *dim->integer() < 0) return wrong();
      too_large |= __builtin_mul_overflow(product, *dim->integer(), &product);
    }
    std::int64_t more = sum.value_or(0);
    too_large |= __builtin_add_overflow(more, product, &more);
    sum = more;
  }
  return too_large ? std::nullopt : sum;
}

/// Each type once, in the order of their names.
Result<std::string> types_of(const Entry& entry, std::string_view field) {
  const PickleValue* types = entry.value->find(field);
  if (types == nullptr) return "";
  const auto wrong = [&] { return entry.wrong(field, "a list with the type of each tensor"); };
  if (types->list() == nullptr) return wrong();
  std::vector<std::string> names;
  for (const PickleRef type : types->list()->items) {
    if (type->text() == nullptr) return wrong();
    names.push_back(*type->text());
  }
  std::ranges::sort(names);
  const auto doubles = std::ranges::unique(names);
  names.erase(doubles.begin(), doubles.end());
  return fmt::format("{}", fmt::join(names, ","));
}

Result<CallSide> side_of(const Entry& entry, const std::string& side, bool is_compared) {
  MFSDP_LET(elements, elements_of(entry, side + "_sizes"));
  MFSDP_LET(dtype, types_of(entry, side + "_dtypes"));
  return CallSide{.elements = is_compared ? elements : std::nullopt, .dtype = std::move(dtype)};
}

/// The innermost frame outside PyTorch.
std::string place_of(const PickleValue& entry) {
  const PickleValue* frames = entry.find("frames");
  if (frames == nullptr || frames->list() == nullptr) return "";
  for (const PickleRef frame : frames->list()->items) {
    const PickleValue* file = frame->find("filename");
    const PickleValue* line = frame->find("line");
    if (file == nullptr || file->text() == nullptr || line == nullptr || line->integer() == nullptr)
      continue;
    const std::string& path = *file->text();
    if (path.find("/torch/") != std::string::npos) continue;
    return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), *line->integer());
  }
  return "";
}

Result<CallState> state_of(const Entry& entry) {
  MFSDP_LET(text, entry.text("state"));
  for (const CallState state : {CallState::scheduled, CallState::started, CallState::completed})
    if (text == to_string(state)) return state;
  return entry.wrong("state", "scheduled, started or completed");
}

/// "nccl:_all_gather_base" without the backend. Names that ranks may mix become one.
std::string kind_of(std::string_view name) {
  if (const auto colon = name.find(':'); colon != std::string_view::npos)
    name.remove_prefix(colon + 1);
  return std::string(name);
}

/// NCCL's watchdog also retires calls that timed out.
bool has_ended(const Entry& entry, CallState state, std::string_view name) {
  return state == CallState::completed || (entry.flag("retired") && !name.starts_with("nccl:"));
}

Result<RecordedCall> read_call(const Entry& entry, std::string kind, std::int64_t number) {
  const auto* found = std::ranges::find(kKinds, kind, &Kind::name);
  const Kind compared = found == kKinds.end() ? Kind{"", false, false} : *found;
  MFSDP_LET(state, state_of(entry));
  MFSDP_LET(name, entry.text("profiling_name"));
  MFSDP_LET(input, side_of(entry, "input", compared.input));
  MFSDP_LET(output, side_of(entry, "output", compared.output));
  return RecordedCall{.key = {.number = number, .part = 0},
                      .kind = std::move(kind),
                      .input = std::move(input),
                      .output = std::move(output),
                      .state = state,
                      .ended = has_ended(entry, state, name),
                      .place = place_of(*entry.value)};
}

/// Source and destination of "send 0->1" and "recv 1<-0". None for other calls between pairs.
std::optional<std::pair<std::int64_t, std::int64_t>> ends_of(std::string_view kind) {
  const bool sends = kind.starts_with("send ");
  const std::string_view arrow = sends ? "->" : "<-";
  const auto at = kind.find(arrow);
  if ((!sends && !kind.starts_with("recv ")) || at == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view text) {
    std::int64_t value = -1;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const std::int64_t own = number(kind.substr(5, at - 5));
  const std::int64_t peer = number(kind.substr(at + arrow.size()));
  return sends ? std::pair(own, peer) : std::pair(peer, own);
}

Result<void> add_entry(FlightDump& dump, const Entry& entry) {
  const PickleValue* group = entry.value->find("process_group");
  if (group == nullptr || group->list() == nullptr || group->list()->items.empty() ||
      group->list()->items[0]->text() == nullptr)
    return entry.wrong("process_group", "a group's name and description");
  const std::vector<PickleRef>& names = group->list()->items;
  FlightGroup& into = dump.groups[*names[0]->text()];
  if (names.size() > 1 && names[1]->text() != nullptr) into.description = *names[1]->text();
  MFSDP_LET(name, entry.text("profiling_name"));
  const std::string kind = kind_of(name);
  if (entry.flag("is_p2p")) {
    const auto ends = ends_of(kind);
    if (!ends) return {};  // a call that combines several sends and receives
    MFSDP_LET(call, read_call(entry, "transfer", 0));
    into.transfers.push_back({.from = ends->first, .to = ends->second, .call = std::move(call)});
    return {};
  }
  MFSDP_LET(number, entry.number("collective_seq_id"));
  MFSDP_LET(call, read_call(entry, kind, number));
  into.calls.push_back(std::move(call));
  return {};
}

/// The ranks in a text of pg_config, "[0, 1, 5]", ascending; empty if it contains none.
std::optional<std::vector<std::int64_t>> numbers_in(std::string_view text) {
  const auto is_between = [](char c) { return c == ' ' || c == ',' || c == '[' || c == ']'; };
  std::vector<std::int64_t> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    if (is_between(*at)) {
      ++at;
      continue;
    }
    const auto [stop, error] = std::from_chars(at, end, numbers.emplace_back());
    if (error != std::errc() || numbers.back() < 0) return std::nullopt;
    at = stop;
  }
  std::ranges::sort(numbers);
  return numbers;
}

Result<void> add_ranks(FlightDump& dump, const PickleValue& root) {
  const PickleValue* config = root.find("pg_config");
  if (config == nullptr) return {};
  if (config->dict() == nullptr)
    return fail(dump.where, "pg_config: expected the groups by their names");
  for (const auto& [name, group] : config->dict()->items) {
    const PickleValue* ranks = group->find("ranks");
    if (name->text() == nullptr || ranks == nullptr) continue;
    auto numbers = ranks->text() == nullptr ? std::nullopt : numbers_in(*ranks->text());
    if (!numbers)
      return fail(dump.where, fmt::format("pg_config: group {}: ranks: expected a text of numbers "
                                          "like [0, 1]",
                                          *name->text()));
    if (!numbers->empty()) dump.groups[*name->text()].ranks = std::move(*numbers);
  }
  return {};
}

/// Sorts calls by number. Calls with the same number become parts, in recorded order.
void number_parts(std::vector<RecordedCall>& calls) {
  std::ranges::stable_sort(calls, {}, &RecordedCall::key);
  for (std::size_t i = 1; i < calls.size(); ++i)
    if (calls[i].key.number == calls[i - 1].key.number)
      calls[i].key.part = calls[i - 1].key.part + 1;
}

Result<PickleDocument> read_document(std::string_view bytes, const std::string& where) {
  const auto first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{') return read_json_values(bytes, where);
  return read_pickle(bytes, where);
}

}  // namespace

Result<FlightDump> read_flight_dump(std::string_view bytes, const std::string& where,
                                    std::int64_t rank) {
  MFSDP_LET(document, read_document(bytes, where));
  const Entry root{document.root, where};
  const PickleValue* entries = root.value->find("entries");
  if (entries == nullptr || entries->list() == nullptr)
    return fail(where, "expected a dump of the flight recorder: a dict with a list of entries");
  MFSDP_LET(version, root.text("version"));
  FlightDump dump{.where = where, .version = version, .rank = rank, .whole = true, .groups = {}};
  MFSDP_TRY(add_ranks(dump, *root.value));
  std::vector<std::pair<std::int64_t, Entry>> order;
  for (std::size_t i = 0; i < entries->list()->items.size(); ++i) {
    const Entry entry{entries->list()->items[i], fmt::format("{}: entry {}", where, i)};
    MFSDP_LET(record, entry.number("record_id"));
    order.emplace_back(record, entry);
  }
  std::ranges::stable_sort(order, {}, [](const auto& row) { return row.first; });
  for (const auto& [record, entry] : order) MFSDP_TRY(add_entry(dump, entry));
  dump.whole = order.empty() || order.front().first == 0;
  for (auto& [name, group] : dump.groups) number_parts(group.calls);
  return dump;
}

}  // namespace mfsdp::traces
