#include "core/formats/read_pickle.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <ranges>
#include <unordered_map>

#include "core/base/excerpt.hpp"
#include "core/base/file_kind.hpp"

namespace mfsdp {
namespace {

/// The name of an opcode that would run code; empty for all others.
std::string_view name_of_code(char opcode) {
  switch (opcode) {
    case 'c': return "GLOBAL";
    case '\x93': return "STACK_GLOBAL";
    case 'R': return "REDUCE";
    case 'b': return "BUILD";
    case 'i': return "INST";
    case 'o': return "OBJ";
    case '\x81': return "NEWOBJ";
    case '\x92': return "NEWOBJ_EX";
    case 'P': return "PERSID";
    case 'Q': return "BINPERSID";
    case '\x82':
    case '\x83':
    case '\x84': return "EXT";
    default: return {};
  }
}

class PickleReader {
 public:
  /// `is_allowed`: names of objects; null: there may be none.
  PickleReader(std::string_view bytes, const std::string& where,
               const std::function<bool(std::string_view)>* is_allowed)
      : bytes_(bytes), where_(where), is_allowed_(is_allowed) {}

  Result<PickleDocument> read() {
    for (;;) {
      opcode_at_ = at_;
      if (at_ >= bytes_.size()) return wrong("ends without STOP");
      const char opcode = bytes_[at_++];
      if (opcode == '.') {
        if (stack_.size() != 1 || !marks_.empty()) return wrong("STOP with no single value");
        document_.root = stack_.back();
        return std::move(document_);
      }
      MFSDP_TRY(run(opcode));
    }
  }

 private:
  /// Lists and dicts still grow while the stack and the memo refer to them.
  using Slot = PickleValue*;

  [[nodiscard]] tl::unexpected<Error> wrong(std::string what) const {
    return fail(fmt::format("{}: byte {}", where_, opcode_at_), std::move(what));
  }

  Result<void> push(auto value) {
    stack_.push_back(&document_.values.emplace_back(PickleValue{std::move(value)}));
    return {};
  }

  Result<std::string_view> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) return wrong("is cut off");
    const std::string_view piece = bytes_.substr(at_, count);
    at_ += count;
    return piece;
  }

  /// A little-endian number of n bytes.
  Result<std::uint64_t> number(std::size_t size) {
    MFSDP_LET(piece, take(size));
    std::uint64_t value = 0;
    std::memcpy(&value, piece.data(), size);
    return value;
  }

  Result<std::string_view> line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return wrong("is cut off");
    const std::string_view text = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  Result<void> push_text(std::size_t size_of_length) {
    MFSDP_LET(length, number(size_of_length));
    MFSDP_LET(text, take(length));
    return push(std::string(text));
  }

  /// Two's complement; beyond 64 bits a float.
  Result<void> push_long(std::size_t size_of_length) {
    MFSDP_LET(length, number(size_of_length));
    MFSDP_LET(digits, take(length));
    std::uint64_t value = 0;
    double wide = 0;
    const bool negative = !digits.empty() && (static_cast<unsigned char>(digits.back()) & 0x80U);
    bool fits = true;
    if (negative) value = ~value;
    for (std::size_t i = digits.size(); i-- > 0;) {
      const auto byte = static_cast<unsigned char>(digits[i]);
      wide = wide * 256 + byte;
      if (i >= 8)
        fits = fits && byte == (negative ? 0xffU : 0U);
      else
        value = (value << 8U) | byte;
    }
    fits = fits && (digits.size() < 9 || (static_cast<std::int64_t>(value) < 0) == negative);
    if (fits) return push(static_cast<std::int64_t>(value));
    return push(negative ? wide - std::ldexp(1, 8 * static_cast<int>(digits.size())) : wide);
  }

  Result<void> push_decimal(bool may_be_truth) {
    MFSDP_LET(text, line());
    if (may_be_truth && (text == "00" || text == "01")) return push(text == "01");
    if (!text.empty() && text.back() == 'L') text.remove_suffix(1);
    std::int64_t value = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || stop != text.data() + text.size())
      return wrong("expected an integer of 64 bits");
    return push(value);
  }

  Result<void> push_float_line() {
    MFSDP_LET(text, line());
    double value = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || stop != text.data() + text.size()) return wrong("expected a float");
    return push(value);
  }

  /// Removes the last mark and the values above it; returns these.
  Result<std::vector<PickleRef>> above_mark() {
    if (marks_.empty()) return wrong("no MARK is left");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleRef> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  /// Removes the given number of values from the top and returns them.
  Result<std::vector<PickleRef>> top(std::size_t count) {
    const std::size_t least = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < least + count) return wrong("too few values");
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<PickleRef> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    return items;
  }

  Result<void> push_list(Result<std::vector<PickleRef>> items) {
    if (!items) return tl::unexpected<Error>(std::move(items.error()));
    return push(PickleList{std::move(*items)});
  }

  template <class Container>
  Result<Container*> container() {
    const std::size_t least = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= least) return wrong("nothing to add to");
    auto* found = std::get_if<Container>(&stack_.back()->value);
    if (found == nullptr) return wrong("adds to what is no list or dict");
    return found;
  }

  Result<void> append(Result<std::vector<PickleRef>> items) {
    if (!items) return tl::unexpected<Error>(std::move(items.error()));
    MFSDP_LET(list, container<PickleList>());
    list->items.insert(list->items.end(), items->begin(), items->end());
    return {};
  }

  Result<void> set_items(Result<std::vector<PickleRef>> items, bool makes_new) {
    if (!items) return tl::unexpected<Error>(std::move(items.error()));
    if (items->size() % 2 != 0) return wrong("a key without a value");
    if (makes_new) MFSDP_TRY(push(PickleDict{}));
    MFSDP_LET(dict, entries_to_set());
    for (std::size_t i = 0; i < items->size(); i += 2)
      dict->items.emplace_back((*items)[i], (*items)[i + 1]);
    return {};
  }

  /// The entries of the dict or object at the top.
  Result<PickleDict*> entries_to_set() {
    if (marks_.empty() ? !stack_.empty() : stack_.size() > marks_.back())
      if (auto* object = std::get_if<PickleObject>(&stack_.back()->value)) return &object->items;
    return container<PickleDict>();
  }

  Result<void> push_name(std::string_view module, std::string_view name) {
    std::string full = fmt::format("{}.{}", module, name);
    if (!(*is_allowed_)(full))
      return wrong(fmt::format("names {}, which no checkpoint needs", excerpt(full)));
    return push(PickleName{std::move(full)});
  }

  Result<void> push_name_of_lines() {
    MFSDP_LET(module, line());
    MFSDP_LET(name, line());
    return push_name(module, name);
  }

  Result<void> push_name_of_stack() {
    MFSDP_LET(words, top(2));
    if (words[0]->text() == nullptr || words[1]->text() == nullptr)
      return wrong("expected two texts");
    return push_name(*words[0]->text(), *words[1]->text());
  }

  Result<void> push_call() {
    MFSDP_LET(call, top(2));
    if (call[0]->name() == nullptr) return wrong("calls what is no name");
    return push(PickleObject{.callee = call[0], .arguments = call[1]});
  }

  Result<void> push_persistent_id() {
    MFSDP_LET(id, top(1));
    return push(PickleObject{.arguments = id[0]});
  }

  Result<void> set_state() {
    MFSDP_LET(state, top(1));
    MFSDP_LET(object, container<PickleObject>());
    object->state = state[0];
    return {};
  }

  /// The opcodes of objects; none for others.
  std::optional<Result<void>> run_object(char opcode) {
    switch (opcode) {
      case 'c': return push_name_of_lines();
      case '\x93': return push_name_of_stack();
      case 'R':
      case '\x81': return push_call();
      case 'b': return set_state();
      case 'Q': return push_persistent_id();
      default: return std::nullopt;
    }
  }

  Result<void> remember(std::uint64_t key) {
    if (stack_.empty()) return wrong("nothing to remember");
    memo_[key] = stack_.back();
    return {};
  }

  Result<void> recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) return wrong("refers to what was not remembered");
    stack_.push_back(found->second);
    return {};
  }

  Result<std::uint64_t> key_line() {
    MFSDP_LET(text, line());
    std::uint64_t key = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), key);
    if (code != std::errc() || stop != text.data() + text.size()) return wrong("expected a number");
    return key;
  }

  Result<void> with(Result<std::uint64_t> value, auto use) {
    if (!value) return tl::unexpected<Error>(std::move(value.error()));
    return use(*value);
  }

  Result<void> run(char opcode) {
    const auto store = [this](std::uint64_t key) { return remember(key); };
    const auto load = [this](std::uint64_t key) { return recall(key); };
    const auto integer = [this](std::uint64_t value) {
      return push(static_cast<std::int64_t>(value));
    };
    switch (opcode) {
      case '\x80': return with(number(1), [](std::uint64_t) { return Result<void>(); });  // PROTO
      case '\x95': return with(number(8), [](std::uint64_t) { return Result<void>(); });  // FRAME
      case 'N': return push(std::monostate());
      case '\x88': return push(true);
      case '\x89': return push(false);
      case 'I': return push_decimal(true);
      case 'L': return push_decimal(false);
      case 'K': return with(number(1), integer);
      case 'M': return with(number(2), integer);
      case 'J':
        return with(number(4), [this](std::uint64_t value) {
          return push(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(value))});
        });
      case '\x8a': return push_long(1);
      case '\x8b': return push_long(4);
      case 'F': return push_float_line();
      case 'G': return push_big_endian_float();
      case 'V':
        return [this]() -> Result<void> {
          MFSDP_LET(text, line());
          return push(std::string(text));
        }();
      case '\x8c':
      case 'C':
      case 'U': return push_text(1);
      case 'X':
      case 'B':
      case 'T': return push_text(4);
      case '\x8d':
      case '\x8e': return push_text(8);
      case ']':
      case ')':
      case '\x8f': return push(PickleList{});
      case '}': return push(PickleDict{});
      case '(': return marks_.push_back(stack_.size()), Result<void>();
      case 't':
      case 'l':
      case '\x91': return push_list(above_mark());
      case '\x85': return push_list(top(1));
      case '\x86': return push_list(top(2));
      case '\x87': return push_list(top(3));
      case 'a': return append(top(1));
      case 'e':
      case '\x90': return append(above_mark());
      case 'd': return set_items(above_mark(), true);
      case 's': return set_items(top(2), false);
      case 'u': return set_items(above_mark(), false);
      case '0': return drop();
      case 'p': return with(key_line(), store);
      case 'q': return with(number(1), store);
      case 'r': return with(number(4), store);
      case '\x94': return remember(memo_.size());
      case 'g': return with(key_line(), load);
      case 'h': return with(number(1), load);
      case 'j': return with(number(4), load);
      default: break;
    }
    if (is_allowed_ != nullptr)
      if (auto done = run_object(opcode)) return std::move(*done);
    if (const auto name = name_of_code(opcode); !name.empty())
      return wrong(fmt::format("{} runs code: expected data alone", name));
    return wrong(fmt::format("0x{:02x} is no opcode of a pickle of data",
                             static_cast<unsigned char>(opcode)));
  }

  Result<void> push_big_endian_float() {
    MFSDP_LET(piece, take(8));
    std::uint64_t bits = 0;
    for (const char c : piece) bits = (bits << 8U) | static_cast<unsigned char>(c);
    return push(std::bit_cast<double>(bits));
  }

  Result<void> drop() {
    const auto items = top(1);
    if (!items) return tl::unexpected<Error>(items.error());
    return {};
  }

  std::string_view bytes_;
  const std::string& where_;
  const std::function<bool(std::string_view)>* is_allowed_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  PickleDocument document_;
  std::vector<Slot> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Slot> memo_;
};

Result<PickleDocument> read_document(std::string_view bytes, const std::string& where,
                                     const std::function<bool(std::string_view)>* is_allowed) {
  if (bytes.empty()) return fail(where, "expected a pickle, got an empty file");
  auto document = PickleReader(bytes, where, is_allowed).read();
  if (document) return document;
  if (auto other = expected_other_kind(bytes, FileKind::pickle, "a pickle"))
    return fail(where, std::move(*other));
  return document;
}

}  // namespace

const PickleDict* PickleValue::entries() const {
  if (const PickleObject* called = object()) return &called->items;
  return dict();
}

std::string_view PickleValue::type() const {
  const PickleObject* called = object();
  if (called == nullptr || called->callee == nullptr) return {};
  const PickleName* name = called->callee->name();
  return name == nullptr ? std::string_view() : std::string_view(name->name);
}

const PickleValue* PickleValue::find(std::string_view key) const {
  const PickleDict* all = entries();
  if (all == nullptr) return nullptr;
  for (const auto& [name, item] : std::views::reverse(all->items))
    if (const std::string* text = name->text(); text != nullptr && *text == key) return item;
  return nullptr;
}

Result<PickleDocument> read_pickle(std::string_view bytes, const std::string& where) {
  return read_document(bytes, where, nullptr);
}

Result<PickleDocument> read_pickle_objects(
    std::string_view bytes, const std::string& where,
    const std::function<bool(std::string_view name)>& is_allowed) {
  return read_document(bytes, where, &is_allowed);
}

}  // namespace mfsdp
