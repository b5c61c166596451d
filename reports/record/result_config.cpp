// Reading the `model` and `config` objects of a result back into a configuration.
#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/plan/config_fields.hpp"
#include "reports/record/result_fields.hpp"
#include "reports/record/result_json.hpp"

namespace mfsdp {
namespace {

using ParsedJson = nlohmann::json;

/// Reads the fields of one object, which must be there, and keeps the first error.
class FieldReader {
 public:
  FieldReader(const ParsedJson& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  void operator()(std::string_view key, std::int64_t& value) {
    const auto fits = [](const ParsedJson& field) {
      return field.is_number_integer() && (!field.is_number_unsigned() ||
                                           std::in_range<std::int64_t>(field.get<std::uint64_t>()));
    };
    if (const ParsedJson* field = find(key, "an integer below 2^63", fits))
      value = field->get<std::int64_t>();
  }
  void operator()(std::string_view key, bool& value) {
    if (const ParsedJson* field = find(key, "true or false", &ParsedJson::is_boolean))
      value = field->get<bool>();
  }
  void operator()(std::string_view key, std::string& value) {
    if (const ParsedJson* field = find(key, "text", &ParsedJson::is_string))
      value = field->get<std::string>();
  }
  void operator()(std::string_view key, std::vector<std::string>& value) {
    const ParsedJson* field = find(key, "a list of text", &ParsedJson::is_array);
    if (field == nullptr) return;
    value.clear();
    for (const ParsedJson& item : *field) {
      if (!item.is_string()) return expected(key, "a list of text");
      value.push_back(item.get<std::string>());
    }
  }
  void operator()(std::string_view key, std::vector<std::int64_t>& value) {
    read_list(key, "a list of integers below 2^63", value);
  }
  void operator()(std::string_view key, std::vector<Rational>& value) {
    read_list(key, "a list of numbers or \"num/den\"", value);
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(std::string_view key, Enum& value) {
    const ParsedJson* field = find(key, name_list<Enum>(), &ParsedJson::is_string);
    if (field == nullptr) return;
    if (const auto known = parse<Enum>(field->get_ref<const std::string&>()))
      value = *known;
    else
      expected(key, name_list<Enum>());
  }
  /// null where it is that of all else.
  void operator()(std::string_view key, std::optional<Strategy>& value) {
    value.reset();
    if (!has(key) || !object_.at(key).is_null()) (*this)(key, value.emplace());
  }
  void operator()(std::string_view key, Rational& value) {
    constexpr std::string_view kind = "a number or \"num/den\"";
    const auto any = [](const ParsedJson&) { return true; };
    const ParsedJson* field = find(key, kind, any);
    if (field == nullptr) return;
    const auto read = rational(*field);
    if (read)
      value = *read;
    else
      expected(key, kind);
  }
  void operator()(std::string_view key, RecomputePolicy& value) {
    std::string text;
    (*this)(key, text);
    if (error_) return;
    if (const auto policy = parse_recompute(text))
      value = *policy;
    else
      expected(key, name_list<Recompute>() + ", or full:K");
  }
  void operator()(std::string_view key, RopeScaling& value) {
    const ParsedJson* field = find(key, "an object", &ParsedJson::is_object);
    if (field == nullptr) return;
    FieldReader part(*field, fmt::format("{}.{}", where_, key));
    result_fields(part, value);
    error_ = std::move(part.error_);
  }
  void operator()(std::string_view /*key*/, Mesh& value) {
    std::int64_t dp_outer = 1;
    std::int64_t dp_shard = 1;
    (*this)("dp_outer", dp_outer);
    (*this)("dp_shard", dp_shard);
    // The grid of experts follows from a field of its own.
    value = data_parallel_mesh(dp_outer, dp_shard);
    for (const Axis axis : kOtherDenseAxes) {
      std::int64_t ranks = 1;
      sparse(to_string(axis), ranks);
      if (!error_) value.resize(axis, ranks);
    }
  }

  [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
  // Keys that only some objects have.
  void sparse(std::string_view key, auto& value) {
    if (has(key)) (*this)(key, value);
  }
  void later(std::string_view key, auto& value) { sparse(key, value); }
  void derived(std::string_view /*key*/, auto /*value*/) {}
  [[nodiscard]] static bool includes(bool /*condition*/) { return true; }

  [[nodiscard]] Result<void> outcome() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }

 private:
  /// Each item by the reader of its type.
  template <class T>
  void read_list(std::string_view key, std::string_view kind, std::vector<T>& value) {
    const ParsedJson* field = find(key, kind, &ParsedJson::is_array);
    if (field == nullptr) return;
    value.clear();
    for (const ParsedJson& item : *field) {
      const ParsedJson one{{"item", item}};
      FieldReader reader(one, where_);
      reader("item", value.emplace_back());
      if (!reader.outcome()) return expected(key, kind);
    }
  }
  static Result<Rational> rational(const ParsedJson& field) {
    if (field.is_number_integer()) return parse_rational(field.dump(), "");  // may exceed int64
    if (field.is_number()) return rational_from_double(field.get<double>(), "");
    if (!field.is_string()) return fail("", "not a number");
    const auto& text = field.get_ref<const std::string&>();
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) return fail("", "no fraction");
    std::int64_t num = 0;
    std::int64_t den = 0;
    const char* end = text.data() + text.size();
    const auto over = std::from_chars(text.data(), text.data() + slash, num);
    const auto under = std::from_chars(text.data() + slash + 1, end, den);
    if (over.ptr != text.data() + slash || under.ptr != end) return fail("", "no fraction");
    return make_rational(num, den);
  }

  const ParsedJson* find(std::string_view key, std::string_view kind, auto check) {
    if (error_) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end() && std::invoke(check, *found)) return &*found;
    expected(key, kind);
    return nullptr;
  }
  void expected(std::string_view key, std::string_view kind) {
    error_ =
        Error{.where = fmt::format("{}.{}", where_, key), .what = "expected " + std::string(kind)};
  }

  const ParsedJson& object_;
  std::string where_;
  std::optional<Error> error_;
};

Result<ParsedJson> parse_object(const std::string& text, const std::string& where) {
  ParsedJson json = ParsedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(where, "expected a JSON object");
  return json;
}

Result<void> read_model(const ParsedJson& json, const std::string& where, ModelShape& shape) {
  FieldReader read(json, where);
  shape_fields(read, shape, 0);
  return read.outcome();
}

Result<void> read_config(const ParsedJson& json, const std::string& where, PlanConfig& config) {
  FieldReader read(json, where);
  for_each_field(config, [&](const ConfigField& field, auto& value) {
    const bool stored_before = field.age >= FieldAge::later && !read.has(field.name);
    if (!stored_before) read(field.name, value);
  });
  if (read.outcome()) config.mesh = with_expert_grid(config.mesh, config.expert_parallel);
  // Before there was a choice it was this one.
  if (!read.has("layout")) config.layout = LayoutRule::megatron_fsdp;
  return read.outcome();
}

}  // namespace

Result<PlanConfig> config_from_json(const std::string& model, const std::string& config,
                                    const std::string& where) {
  PlanConfig result;
  MFSDP_LET(model_object, parse_object(model, where + ".model"));
  MFSDP_LET(config_object, parse_object(config, where + ".config"));
  MFSDP_TRY(read_model(model_object, where + ".model", result.model));
  MFSDP_TRY(read_config(config_object, where + ".config", result));
  return result;
}

}  // namespace mfsdp
