// docs/reference/formats.md names every key that a plan may have.
#include "tests/support/documented.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <set>
#include <string>
#include <type_traits>
#include <variant>

#include "core/plan/describe.hpp"
#include "core/plan/plan_file.hpp"

namespace mfsdp {
namespace {

/// Goes through all that a description names, whether a plan states it or not.
class Keys {
 public:
  std::set<std::string> found;

  template <class T>
  void operator()(std::string_view key, T& value) {
    found.insert(std::string(key));
    visit(value);
  }
  template <class T>
  void sparse(std::string_view key, T& value) {
    (*this)(key, value);
  }
  void meta(std::string_view key, Meta& value) { (*this)(key, value); }
  void schema(std::string_view key) { found.insert(std::string(key)); }

 private:
  template <class T>
  void visit(std::vector<T>& /*values*/) {
    if constexpr (!std::same_as<T, bool>) {
      T one{};
      visit(one);
    }
  }
  template <class T>
  void visit(std::optional<T>& /*value*/) {
    T one{};
    visit(one);
  }
  void visit(OpBody& /*body*/) {
    visit_bodies(std::make_index_sequence<std::variant_size_v<OpBody>>{});
  }
  template <std::size_t... i>
  void visit_bodies(std::index_sequence<i...> /*all*/) {
    (visit_body<i>(), ...);
  }
  template <std::size_t i>
  void visit_body() {
    found.insert(std::string(Names<OpKind>::values.at(i)));
    std::variant_alternative_t<i, OpBody> body{};
    visit(body);
  }
  template <class T>
  void visit(T& value) {
    if constexpr (requires(Keys& io) { describe::fields(io, value); })
      describe::fields(*this, value);
  }
};

TEST(Documented, KeysOfPlans) {
  Keys keys;
  PlanFile file;
  describe::fields(keys, file);
  EXPECT_GT(keys.found.size(), 150U);
  const std::set<std::string> named = test::documented("reference/formats.md", "Plan");
  for (const std::string& key : keys.found)
    EXPECT_TRUE(named.contains(key)) << key << " has no place in the table of plans' keys";
}

}  // namespace
}  // namespace mfsdp
