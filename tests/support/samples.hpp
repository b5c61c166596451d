// Tests that sweep many cases: all of them in release builds, one under sanitizers.
#pragma once

namespace mfsdp::test {

/// True under sanitizers. A sweep proves a theorem (equality, edits, finite differences, searches) that each further
/// case makes more probable; a memory fault shows in the first. Sanitizers make code ten to forty times slower,
/// so there a sweep runs one case.
#ifdef MFSDP_SANITIZED
inline constexpr bool kOneCase = true;
#else
inline constexpr bool kOneCase = false;
#endif

/// Why a test is left out under sanitizers: GTEST_SKIP() << test::kTheorem.
inline constexpr const char* kTheorem =
    "a theorem about results; other tests run its code under sanitizers";

/// How many of `count` cases a sweep runs.
constexpr int cases(int count) { return kOneCase ? 1 : count; }

/// Takes each `every`-th of a sweep's cases, the first among them; under sanitizers the first alone.
class Sample {
 public:
  explicit Sample(int every = 1) : every_(every) {}
  bool takes_next() {
    const int number = number_++;
    return kOneCase ? number == 0 : number % every_ == 0;
  }

 private:
  int every_;
  int number_ = 0;
};

}  // namespace mfsdp::test
