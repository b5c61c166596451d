// Reading a result of schema mfsdp.result/1 back.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "reports/record/rates.hpp"
#include "reports/record/result_fields.hpp"
#include "reports/record/result_json.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

using ResultDocument = nlohmann::json;

/// Reads the fields of one object (result_fields.hpp). Members that are null or absent keep their
/// value, because keys were added over time. The first member of another type is kept as the error.
class MemberReader {
 public:
  static constexpr bool kIsJson = true;

  MemberReader(const ResultDocument& object, std::string where, FigureSet& absent)
      : object_(object), where_(std::move(where)), absent_(absent) {}

  void operator()(std::string_view key, std::string& value) {
    if (const auto* found = find(key, "text", &ResultDocument::is_string))
      value = found->get<std::string>();
  }
  void operator()(std::string_view key, bool& value) {
    if (const auto* found = find(key, "true or false", &ResultDocument::is_boolean))
      value = found->get<bool>();
  }
  void operator()(std::string_view key, std::int64_t& value,
                  NumberRange range = NumberRange::positive) {
    const bool is_any = range == NumberRange::any;
    const auto fits = [&](const ResultDocument& json) {
      return is_integer(json) && (is_any || json.get<std::int64_t>() >= 0);
    };
    if (const auto* found =
            find(key, is_any ? "an integer below 2^63" : "an integer of at least 0 and below 2^63",
                 fits))
      value = found->get<std::int64_t>();
  }
  void operator()(std::string_view key, double& value, NumberRange range = NumberRange::positive) {
    static constexpr std::array kKinds{"a number of at least 0", "a number",
                                       "a fraction from 0 to 1", "a fraction from 0 to 2"};
    const auto fits = [&](const ResultDocument& json) {
      return json.is_number() && is_in(range, json.get<double>());
    };
    if (const auto* found = find(key, kKinds.at(static_cast<std::size_t>(range)), fits))
      value = found->get<double>();
  }
  template <class Dimension, class... Range>
  void operator()(std::string_view key, Quantity<Dimension>& value, Range... range) {
    (*this)(key, value.value, range...);
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(std::string_view key, Enum& value) {
    std::string name(to_string(value));
    (*this)(key, name);
    if (const auto known = parse<Enum>(name))
      value = *known;
    else
      expected(key, "one of " + name_list<Enum>());
  }
  /// None for a name of a later version.
  void operator()(std::string_view key, std::optional<Awaited>& value) {
    std::string name;
    (*this)(key, name);
    value = parse<Awaited>(name);
  }
  template <class T, class... Range>
  void operator()(std::string_view key, std::optional<T>& value, Range... range) {
    value.reset();
    if (has(key)) (*this)(key, value.emplace(), range...);
  }
  template <class T>
    requires Described<T>
  void operator()(std::string_view key, T& value) {
    object(key, [&](MemberReader& part) { result_fields(part, value); });
  }
  template <class T>
  void operator()(std::string_view key, std::vector<T>& values) {
    const auto* list = find(key, "a list", &ResultDocument::is_array);
    if (list == nullptr) return;
    for (const ResultDocument& item : *list) {
      if (!item.is_object()) return expected(key, "objects");
      read_part(item, key, [&](MemberReader& part) { result_fields(part, values.emplace_back()); });
    }
  }

  void sparse(std::string_view key, auto& value, auto... range) { (*this)(key, value, range...); }
  /// A number without a value is none.
  template <class T, class... Range>
  void figure(ResultFigure which, T& value, Range... range) {
    if constexpr (std::is_same_v<T, double>) value = kNoNumber;
    if (!has(to_string(which))) absent_.add(which);
    (*this)(to_string(which), value, range...);
  }
  void real(std::string_view key, double& value) {
    value = kNoNumber;
    (*this)(key, value, NumberRange::any);
  }
  void known(std::string_view key, Nanos& value, bool& is_known) {
    is_known = has(key);
    (*this)(key, value);
  }
  void positive(std::string_view key, double& value) { (*this)(key, value); }
  void decimal(std::string_view key, Rational& value) {
    double number = 1;
    (*this)(key, number);
    const auto exact = rational_from_double(number, place(key));
    if (exact)
      value = *exact;
    else if (!error_)
      error_ = exact.error();
  }
  void written(std::string_view /*key*/, const auto& /*value*/) {}
  void derived(std::string_view /*key*/, auto /*value*/) {}
  void object(std::string_view key, auto part) {
    static const ResultDocument none = ResultDocument::object();
    const auto* found = find(key, "an object", &ResultDocument::is_object);
    read_part(found != nullptr ? *found : none, key, part);
  }
  void object(ResultFigure which, auto part) {
    if (!has(to_string(which))) absent_.add(which);
    object(to_string(which), part);
  }
  template <class T>
  void part(std::string_view first, std::optional<T>& value) {
    if (has(first)) result_fields(*this, value.emplace());
  }
  [[nodiscard]] static bool includes(bool /*condition*/) { return true; }
  [[nodiscard]] bool lacks(std::string_view key) const { return !has(key); }

  /// Whether there is such a key, null or not.
  [[nodiscard]] bool contains(std::string_view key) const { return object_.contains(key); }
  [[nodiscard]] bool has(std::string_view key) const {
    const auto found = object_.find(key);
    return found != object_.end() && !found->is_null();
  }
  /// The text of the object of that key; of an empty one where there is none.
  [[nodiscard]] std::string object_text(std::string_view key) {
    const auto* found = find(key, "an object", &ResultDocument::is_object);
    return found != nullptr ? found->dump() : "{}";
  }
  [[nodiscard]] Result<void> outcome() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }
  [[nodiscard]] std::string place(std::string_view key) const {
    return fmt::format("{}.{}", where_, key);
  }

 private:
  static constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

  static bool is_integer(const ResultDocument& json) {
    return json.is_number_integer() &&
           (!json.is_number_unsigned() || std::in_range<std::int64_t>(json.get<std::uint64_t>()));
  }
  static bool is_in(NumberRange range, double value) {
    switch (range) {
      case NumberRange::positive: return value >= 0;
      case NumberRange::any: return true;
      case NumberRange::fraction: return value >= 0 && value <= 1;
      case NumberRange::utilization: return value >= 0 && value <= kMostMfu;
    }
    return false;
  }

  void read_part(const ResultDocument& json, std::string_view key, auto part) {
    if (error_) return;
    MemberReader reader(json, place(key), absent_);
    part(reader);
    error_ = std::move(reader.error_);
  }
  const ResultDocument* find(std::string_view key, std::string_view kind, auto check) {
    if (error_ || !has(key)) return nullptr;
    const auto found = object_.find(key);
    if (std::invoke(check, *found)) return &*found;
    expected(key, kind);
    return nullptr;
  }
  void expected(std::string_view key, std::string_view kind) {
    if (!error_) error_ = Error{.where = place(key), .what = "expected " + std::string(kind)};
  }

  const ResultDocument& object_;
  std::string where_;
  FigureSet& absent_;
  std::optional<Error> error_;
};

/// All but the head, and the part of one kind of run.
Result<void> read_figures(MemberReader& read, const std::string& where, RunFigures& run,
                          Predicted& predicted) {
  read.object("model", [&](MemberReader& model) {
    model("name", run.model_name);
    model.figure(ResultFigure::parameters, run.parameters);
    if (!model.has("layers")) run.absent.add(ResultFigure::model);
  });
  read("cluster", run.cluster);
  MFSDP_TRY(read.outcome());
  if (!read.has("config")) run.absent.add(ResultFigure::config);
  if (!run.absent.has(ResultFigure::model) && !run.absent.has(ResultFigure::config))
    MFSDP_SET(run.config,
              config_from_json(read.object_text("model"), read.object_text("config"), where));
  if (read.has("facts"))
    MFSDP_SET(run.facts, facts_from_json(read.object_text("facts"), read.place("facts")));
  read("traffic", run.traffic);
  read.figure(ResultFigure::plan, run.plan);
  read.object("memory", [&](auto& memory) { memory_fields(memory, run.memory, predicted); });
  read.object("time", [&](MemberReader& time) {
    time_fields(time, run.time, predicted);
    // As earlier versions wrote a result of one step.
    if (time.contains("median_step_ns") || run.absent.has(ResultFigure::step_ns)) return;
    run.time.median_step = run.time.step;
    run.absent.remove(ResultFigure::median_step_ns);
  });
  return read.outcome();
}

}  // namespace

Result<RoutingReport> routing_from_json(std::string_view text, const std::string& where) {
  const ResultDocument json = ResultDocument::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(where, "expected a JSON object");
  FigureSet absent;
  RoutingReport report;
  MemberReader read(json, where, absent);
  result_fields(read, report);
  MFSDP_TRY(read.outcome());
  return report;
}

Result<RunResult> result_from_json(std::string_view text, const std::string& where) {
  const ResultDocument json = ResultDocument::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(where, "expected a JSON object");
  RunFigures run;
  Predicted predicted;
  Measured measured;
  MemberReader read(json, where, run.absent);
  std::string schema;
  std::string source;
  read("schema", schema);
  read("source", source);
  head_fields(read, run);
  read("engine", run.engine);
  read("calibration", predicted.calibration);
  read("cost_model_version", predicted.cost_model_version);
  MFSDP_TRY(read.outcome());
  if (schema != kResultSchema)
    return fail(read.place("schema"), fmt::format("expected \"{}\"", kResultSchema));
  if (run.run_id.empty()) return fail(read.place("run_id"), "expected the run's id");
  if (source != "simulated" && source != "measured")
    return fail(read.place("source"), "expected simulated or measured");
  MFSDP_TRY(read_figures(read, where, run, predicted));
  if (source == "measured") {
    read("status", run.status);
    result_fields(read, measured);
    MFSDP_TRY(read.outcome());
    forget_unmeasured(run);
    return RunResult(std::move(run), std::move(measured));
  }
  result_fields(read, predicted);
  MFSDP_TRY(read.outcome());
  return RunResult(std::move(run), std::move(predicted));
}

}  // namespace mfsdp
