// Certificates altered at random and sealed again: the checker refuses them, or what it accepts is
// so by a search through every interleaving.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/interleavings.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/sealed.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/proof/certificate.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

/// A plan of 3 units, 2 slots and 2 ranks, and what is so.
struct Subject {
  std::string plan;
  Json certificate;  ///< with all claims of the plan
  bool races = false;
};

Program three_units(int variant) { return *build_program(test::three_units(variant), {}); }

/// Leaves out the n-th wait of a plan, n counted round.
void drop_wait(Program& program, std::size_t n) {
  std::vector<std::pair<Segment*, std::size_t>> waits;
  for (Segment& segment : program.plans[0].segments)
    for (std::size_t i = 0; i < segment.ops.size(); ++i)
      if (segment.ops[i].kind() == OpKind::wait) waits.emplace_back(&segment, i);
  const auto [segment, at] = waits[n % waits.size()];
  segment->ops.erase(segment->ops.begin() + static_cast<std::ptrdiff_t>(at));
}

std::optional<Subject> subject_of(const Program& program) {
  test::Interleavings search(program, program.plans[0]);
  const bool races = search.find_race(200'000).has_value();
  if (search.gave_up) return std::nullopt;
  return Subject{.plan = to_canonical_json(program),
                 .certificate = Json::parse(unproved_certificate(program).value()),
                 .races = races};
}

// ---- alterations -------------------------------------------------------------------------------

/// All places of a document, parents before children.
void collect(Json& at, std::vector<Json*>& places) {
  places.push_back(&at);
  for (Json& child : at)
    if (at.is_structured()) collect(child, places);
}

Json any_scalar(const Json& old, std::mt19937& random) {
  const std::int64_t number = old.is_number_integer() ? old.get<std::int64_t>() : 0;
  switch (random() % 9) {
    case 0: return number + 1;
    case 1: return number - 1;
    case 2: return number + static_cast<std::int64_t>(random() % 40);
    case 3: return std::max<std::int64_t>(0, number - static_cast<std::int64_t>(random() % 40));
    case 4: return 0;
    case 5: {
      const auto power = std::uint64_t{1} << (random() % 64);
      return power - random() % 2;
    }
    case 6: return nullptr;
    case 7: return "train";
    default: return 0.5;
  }
}

void alter(Json& certificate, std::mt19937& random) {
  std::vector<Json*> places;
  collect(certificate, places);
  Json& place = *places[random() % places.size()];
  if (!place.is_structured() || place.empty()) {
    place = any_scalar(place, random);
  } else if (place.is_object()) {
    place.erase(std::next(place.begin(), static_cast<std::ptrdiff_t>(random() % place.size())));
  } else {
    const std::size_t a = random() % place.size();
    const std::size_t b = random() % place.size();
    switch (random() % 3) {
      case 0: place.erase(a); break;
      case 1: place.insert(place.begin() + static_cast<std::ptrdiff_t>(a), Json(place[b])); break;
      default: std::swap(place[a], place[b]);
    }
  }
}

TEST(AlteredCertificates, AreRefusedOrTrue) {
  constexpr int kAlterations = test::kOneCase ? 50 : 500;
  constexpr int kSubjects = test::kOneCase ? 9 : 32;  // each is searched
  std::mt19937 random(1);
  std::vector<Subject> subjects;
  int racing = 0;
  for (int i = 0; std::ssize(subjects) < kSubjects; ++i) {
    Program program = three_units(i);
    if (i >= 8) drop_wait(program, random());
    auto subject = subject_of(program);
    if (!subject) continue;
    racing += subject->races ? 1 : 0;
    const auto checked = check_certificate(subject->plan, test::sealed(subject->certificate));
    EXPECT_EQ(checked.has_value(), !subject->races) << i << ' ' << checked.error().message();
    subjects.push_back(std::move(*subject));
  }
  int accepted = 0;
  for (int i = 0; i < kAlterations; ++i) {
    const Subject& subject = subjects[static_cast<std::size_t>(i) % subjects.size()];
    Json altered = subject.certificate;
    for (auto times = 1 + random() % 3; times > 0; --times) alter(altered, random);
    const auto checked = check_certificate(subject.plan, test::sealed(altered));
    if (!checked) continue;
    ++accepted;
    EXPECT_FALSE(subject.races) << altered.dump();
  }
  EXPECT_GT(racing, test::kOneCase ? 0 : 10);
  EXPECT_GT(accepted, 0);  // a clock may claim less than holds
  EXPECT_LT(accepted, kAlterations / 2);
}

}  // namespace
}  // namespace mfsdp
