#include "core/plan/name_choices.hpp"

#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/plan/describe.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {
namespace {

/// Visits the types of a program by its description.
class NameChoices {
 public:
  NameChoices() {
    Program program;
    describe::fields(*this, program);
  }

  std::map<std::string, std::vector<std::string>, std::less<>> by_name;

  void operator()(std::string_view /*key*/, auto& value) { visit(value); }
  void sparse(std::string_view /*key*/, auto& value) { visit(value); }
  void meta(std::string_view /*key*/, Meta& /*value*/) {}
  void schema(std::string_view /*key*/) {}

 private:
  template <class Enum>
    requires std::is_enum_v<Enum>
  void visit(Enum& /*value*/) {
    if (!seen_.insert(&Names<Enum>::values).second) return;
    for (const std::string_view name : Names<Enum>::values)
      for (const std::string_view other : Names<Enum>::values)
        if (other != name) by_name[std::string(name)].emplace_back(other);
  }
  template <class T>
  void visit(std::vector<T>& /*list*/) {
    T entry{};
    visit(entry);
  }
  template <class T>
  void visit(std::optional<T>& /*value*/) {
    T value{};
    visit(value);
  }
  void visit(OpBody& /*body*/) {
    [this]<std::size_t... Indices>(std::index_sequence<Indices...>) {
      (visit_alternative<Indices>(), ...);
    }(std::make_index_sequence<std::variant_size_v<OpBody>>{});
  }
  template <std::size_t Index>
  void visit_alternative() {
    std::variant_alternative_t<Index, OpBody> body{};
    visit(body);
  }
  template <class T>
    requires requires(NameChoices& io, T& value) { describe::fields(io, value); }
  void visit(T& value) {
    describe::fields(*this, value);
  }
  void visit(auto& /*number or text*/) {}

  std::set<const void*> seen_;
};

}  // namespace

const std::map<std::string, std::vector<std::string>, std::less<>>& name_choices() {
  static const NameChoices choices;
  return choices.by_name;
}

}  // namespace mfsdp
