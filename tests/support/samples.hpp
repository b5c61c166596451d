// How much of a sample is looked at.
#pragma once

namespace mfsdp::test {

/// Sanitizers make code ten to forty times slower, and look for faults that every case of a sample
/// can show: there it is so many times smaller. Release builds look at all of it.
#ifdef MFSDP_SANITIZED
inline constexpr int kThinner = 24;
#else
inline constexpr int kThinner = 1;
#endif

/// How many of so many cases.
constexpr int thinned(int cases) { return (cases + kThinner - 1) / kThinner; }

/// Takes one of so many cases, the first of all among them; of fewer under sanitizers.
class Sample {
 public:
  explicit Sample(int every = 1) : every_(every * kThinner) {}
  bool takes_next() { return number_++ % every_ == 0; }

 private:
  int every_;
  int number_ = 0;
};

}  // namespace mfsdp::test
